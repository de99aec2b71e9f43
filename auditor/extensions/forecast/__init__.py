"""What an operator would take on a GPU that is not here: FLOPs and bytes from shapes, times from
data sheets and a few fitted numbers, always with an interval (docs/forecast.md).
"""

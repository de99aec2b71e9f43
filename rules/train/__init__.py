"""Rules of the family TRAIN: does the step train what it says?"""

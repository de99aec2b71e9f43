from .data import synth_gallery
from .mining import TripletMiner
from .model import Embedder, cosine_triplet

__all__ = ["synth_gallery", "TripletMiner", "Embedder", "cosine_triplet"]

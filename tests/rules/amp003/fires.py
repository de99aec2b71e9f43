from tests.rules.amp003.silent import HALF, _product


def a_vocabulary_of_50257__trace():
    return _product([[2048, 1024], [1024, 50257]], HALF)

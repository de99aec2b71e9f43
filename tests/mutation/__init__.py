"""A mutation run over rules/ and auditor/evidence/, by hand: ``make mutants N=200 SEED=1``.

``changes`` makes the mutants (operators of cosmic-ray), ``touched`` knows which test executes which
line, ``forks`` runs tests against a mutant, ``__main__`` draws the sample and prints what came of
it. docs/log/mutants.md says what the figure means.
"""

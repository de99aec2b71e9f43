"""Names of torch that begin with an underscore: looked up here, once, at import, each with what
happens without it.

One module a subject. Nothing else in the package uses a private name of torch:
``tests/capture/instruments/test_torch_private.py`` reads the source for others, asks each accessor
on the installed torch, and takes each name away in turn.

There are three ways to do without a name, and each accessor's docstring says which one is its own:

- another way to the same, mostly a public function of torch;
- the question is answered as if there was nothing to see, and the probe says less;
- :class:`~auditor.capture.instruments.torch_private.look_up.Missing` is raised where the probe
  starts: the session writes it down as the probe's failure, and rules that find nothing in its
  parts are skipped.

Torch 2.6 has all of them, except where a docstring names a later version.
"""

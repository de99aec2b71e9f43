"""``python -m auditor``: the command ``audit``, where scripts are not on the path."""

from auditor.cli.main import main

if __name__ == "__main__":
    main(prog_name="audit")

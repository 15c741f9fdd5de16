"""`python -m meshnode`: the same as the `meshnode` script."""

import sys

from meshnode.cli.main import main

sys.exit(main())

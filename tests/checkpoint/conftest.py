"""Makes the helpers beside this file importable: sparse_checkpoint, hub_server."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

"""Every Python process of the run interprets all its frames in the mode that the environment names."""

import os
import sys

if os.environ.get("BRAZE_INTERP"):
    sys.path.insert(0, os.environ["BRAZE_INTERP_DIR"])
    import braze_interp_test

    sys.path.pop(0)
    braze_interp_test.everywhere(os.environ["BRAZE_INTERP"])

    if os.environ.get("BRAZE_INTERP_STATS"):
        import atexit

        @atexit.register
        def write_stats():
            with open(os.environ["BRAZE_INTERP_STATS"], "a", encoding="utf-8") as f:
                print(os.getpid(), braze_interp_test.stats(), file=f)

"""A browser of a run's features: an index that needs no model to be opened, a local server, and one page.

`python -m course_lib browse RUN`, or `browse(run)` in a notebook. `index` is what is known of features, `build`
makes it with the run's model, `features` is that model for sentences that are typed in, `server` answers the page and
`page` writes it, also with its data in one static file; `notes` keeps what a reader writes down.
"""

from course_lib.interpret.browser.index import (
    FeatureIndex,
    IndexDamaged,
    IndexMissing,
    IndexOutdated,
    IndexUnavailable,
)
from course_lib.interpret.browser.server import browse

__all__ = ["FeatureIndex", "IndexDamaged", "IndexMissing", "IndexOutdated", "IndexUnavailable", "browse"]

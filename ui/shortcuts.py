"""The keys that do something, as the help of the keyboard tells them."""

# Keys, and what they do. Single ones can be switched off; none of them destroys anything.
KEYS = (
    ("Ctrl K", "jump to a page, a person, a campaign"),
    ("/", "search on this page"),
    ("c", "new email"),
    ("g h", "Home"),
    ("g c", "Campaigns"),
    ("g f", "Flows"),
    ("g t", "Templates"),
    ("g p", "People"),
    ("g l", "Lists"),
    ("g a", "Activity"),
    ("g i", "Inbox"),
    ("g s", "Settings"),
    ("j k", "next and previous row"),
    ("x", "select the row"),
    ("Shift x", "select up to the row"),
    ("Alt ↑ ↓", "move the step of a flow; arrows go between steps, a adds one"),
    ("Esc", "close, clear the selection"),
    ("?", "this list"),
)

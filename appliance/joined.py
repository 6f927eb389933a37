"""What joins itself to others when it is imported, so that they need not know of it.

Whatever is loaded for somebody is loaded after these (`appliance/loading.py`): they would be missed without a word.
"""

from appliance.feedback import receipts as receipts
from appliance.flows import store as store

"""The types of relaxed Extended JSON, which documents have unless the client has `bson=True`.

`mooring types --language python` writes documents that have them. They are for type checkers.
"""

from typing import TypedDict, Union

_Number = TypedDict("_Number", {"$numberLong": str})
_Bytes = TypedDict("_Bytes", {"base64": str, "subType": str})
_Time = TypedDict("_Time", {"t": int, "i": int})
_Pattern = TypedDict("_Pattern", {"pattern": str, "options": str})

ObjectId = TypedDict("ObjectId", {"$oid": str})
DateTime = TypedDict("DateTime", {"$date": Union[str, _Number]})
Long = TypedDict("Long", {"$numberLong": str})
Decimal128 = TypedDict("Decimal128", {"$numberDecimal": str})
Binary = TypedDict("Binary", {"$binary": _Bytes})
Timestamp = TypedDict("Timestamp", {"$timestamp": _Time})
RegularExpression = TypedDict("RegularExpression", {"$regularExpression": _Pattern})

# Runs one operation for each line of its input, which is Python as a JSON text, and answers each
# with a line: empty, or the error.
import json
import sys

import pymongo.common
from bson.son import SON
from pymongo import (CursorType, DeleteMany, DeleteOne, IndexModel, InsertOne, MongoClient,
                     ReadPreference, ReplaceOne, ReturnDocument, UpdateMany, UpdateOne)
from pymongo.collation import Collation
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

# A cursor that is garbage collected while the server has it open is killed in the background, which
# would fall into any later operation: not within this run.
pymongo.common.KILL_CURSOR_FREQUENCY = 3600

client = MongoClient(sys.argv[1])
db = client['wire']
c = db['things']
models = [
    InsertOne({'_id': 50}), InsertOne({'_id': 51}),
    UpdateOne({'_id': 50}, {'$set': {'a': 9}}), ReplaceOne({'_id': 51}, {'b': 1}),
    UpdateMany({'a': 1}, {'$set': {'a': 9}}), DeleteOne({'_id': 51}), DeleteMany({'a': 9}),
]
for line in sys.stdin:
    answer = ''
    try:
        exec(json.loads(line))
    except (PyMongoError, StopIteration) as e:
        answer = type(e).__name__ + ': ' + str(e).replace('\n', ' ')
    print(answer, flush=True)
client.close()

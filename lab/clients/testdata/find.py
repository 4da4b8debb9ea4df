import sys

import grpc
from mooring.v1 import document_pb2, document_service_pb2, document_service_pb2_grpc

with grpc.insecure_channel(sys.argv[1]) as channel:
    documents = document_service_pb2_grpc.DocumentServiceStub(channel)
    request = document_service_pb2.StreamFindRequest(
        database="shop", collection="orders", filter=document_pb2.Document(json='{"_id": 1}')
    )
    encoding = [("mooring-document-encoding", "json")]  # without it, documents are BSON
    for message in documents.StreamFind(request, metadata=encoding, timeout=10):
        for document in message.documents:
            print(document.json)

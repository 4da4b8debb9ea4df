import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.stub.MetadataUtils;
import mooring.v1.DocumentOuterClass.Document;
import mooring.v1.DocumentServiceGrpc;
import mooring.v1.DocumentServiceOuterClass.StreamFindRequest;

public class Find {
  public static void main(String[] args) {
    ManagedChannel channel = ManagedChannelBuilder.forTarget(args[0]).usePlaintext().build();
    Metadata headers = new Metadata(); // without this header, documents are BSON
    var encoding = Metadata.Key.of("mooring-document-encoding", Metadata.ASCII_STRING_MARSHALLER);
    headers.put(encoding, "json");
    var request = StreamFindRequest.newBuilder().setDatabase("shop").setCollection("orders")
        .setFilter(Document.newBuilder().setJson("{\"_id\": 1}")).build();
    var documents = DocumentServiceGrpc.newBlockingStub(channel)
        .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers));
    documents.streamFind(request).forEachRemaining(message -> {
      for (Document document : message.getDocumentsList()) System.out.println(document.getJson());
    });
    channel.shutdownNow();
  }
}

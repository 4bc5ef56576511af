import java.net.InetAddress;
import java.net.InetSocketAddress;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.TUGIBasedProcessor;
import org.apache.hadoop.hive.thrift.TUGIContainingTransport;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * Hive's metastore on the loopback address. Hive's own main listens on every address of the machine and has no setting
 * for it; what is served is the same: Hive's handler, in the Thrift transport and processor that its main would use.
 *
 * <p>Run from its source: {@code java -cp <conf>:<Spark's jars> LocalMetastore.java PORT}.
 */
public final class LocalMetastore {
  public static void main(String[] arguments) throws Exception {
    HiveConf conf = new HiveConf(HiveMetaStore.class);
    var handler =
        HiveMetaStore.newRetryingHMSHandler(new HiveMetaStore.HMSHandler("metastore", conf, false), conf);
    var address = new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(arguments[0]));
    new TThreadPoolServer(
            new TThreadPoolServer.Args(new TServerSocket(address))
                .processor(new TUGIBasedProcessor<>(handler))
                .transportFactory(new TUGIContainingTransport.Factory())
                .protocolFactory(new TBinaryProtocol.Factory())
                .inputProtocolFactory(new TBinaryProtocol.Factory(true, true))
                .minWorkerThreads(2)
                .maxWorkerThreads(64))
        .serve();
  }
}

package io.sparkcrypt;

import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;

/** Prints, in microseconds, how long the first wrap of a JVM takes (helper's start included) and each unwrap after it. */
public final class BridgeCalls {
  private BridgeCalls() {}

  /** Takes the canonical JSON of a key service, a key id and the number of later calls. */
  public static void main(String[] arguments) {
    Configuration conf = new Configuration(false); // parquet-mr hands over one that is loaded already
    conf.set("parquet.sparkcrypt.key_service", arguments[0]);
    BridgeKmsClient client = new BridgeKmsClient();
    client.initialize(conf, "DEFAULT", "DEFAULT", "DEFAULT");
    byte[] key = new byte[32];
    long start = System.nanoTime();
    String wrapped = client.wrapKey(key, arguments[1]);
    System.out.println((System.nanoTime() - start) / 1000);
    for (int i = Integer.parseInt(arguments[2]); i > 0; i--) {
      start = System.nanoTime();
      byte[] unwrapped = client.unwrapKey(wrapped, arguments[1]);
      System.out.println((System.nanoTime() - start) / 1000);
      if (!Arrays.equals(key, unwrapped)) {
        throw new AssertionError("the unwrapped key is not the one that was wrapped");
      }
    }
  }
}

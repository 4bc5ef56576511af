package io.sparkcrypt;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;

/** Prints, in nanoseconds, how long a task takes to open a column's key under each of some policies, one after another. */
public final class AccessCost {
  private AccessCost() {}

  /** Takes the number of keys, whether each is another column's (new or same), and the canonical JSON of policies. */
  public static void main(String[] arguments) {
    int keys = Integer.parseInt(arguments[0]);
    boolean isNew = arguments[1].equals("new");
    SparkSession session = SparkSession.builder().master("local[1]").config("spark.ui.enabled", "false").getOrCreate();
    SparkContext context = session.sparkContext();
    PolicyRegister register = new PolicyRegister(context);
    String[] tokens = new String[arguments.length - 2];
    for (int i = 0; i < tokens.length; i++) {
      tokens[i] = register.add(arguments[i + 2]);
    }
    context.setLocalProperty("spark.sql.execution.id", "1");
    new JavaSparkContext(context).parallelize(List.of(1), 1).foreachPartition(unused -> measure(keys, isNew, tokens));
    session.stop();
  }

  private static void measure(int keys, boolean isNew, String[] tokens) throws Exception {
    FileKeys[] files = new FileKeys[tokens.length];
    byte[] metadata = null;
    for (int i = 0; i < tokens.length; i++) {
      Configuration conf = new Configuration(false);
      conf.set(Names.SESSION_TOKEN, tokens[i]);
      metadata = metadata == null ? metadata(conf) : metadata;
      files[i] = new FileKeys(new SessionConf(conf), conf, new Path("/lake/t/p=1/part-0.parquet"));
      files[i].belongTo("sales.customers");
    }
    for (int call = 0; call < keys; call++) {
      byte[] own = isNew ? unlike(metadata, call) : metadata;
      for (int i = 0; i < files.length; i++) {
        files[i].note(own, List.of("column" + (isNew ? call : 0)));
        long start = System.nanoTime();
        files[i].getKey(own);
        System.out.println(i + " " + (System.nanoTime() - start));
      }
    }
  }

  /** Key metadata of a key that the policy's key service wrapped. */
  private static byte[] metadata(Configuration conf) throws Exception {
    BridgeKmsClient client = new BridgeKmsClient();
    client.initialize(conf, "DEFAULT", "DEFAULT", "DEFAULT");
    ObjectNode material = Wire.object().put("keyMaterialType", "PKMT1").put("internalStorage", true).put("isFooterKey", false);
    material.put("masterKeyID", "bench").put("doubleWrapping", false).put("wrappedDEK", client.wrapKey(new byte[32], "bench"));
    return Wire.text(material);
  }

  /** The same key material in other bytes: readers pass over fields that they do not know. */
  private static byte[] unlike(byte[] metadata, int number) throws Exception {
    return Wire.text(((ObjectNode) Wire.parse(metadata)).put("number", number));
  }
}

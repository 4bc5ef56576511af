import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import org.apache.hadoop.conf.Configuration;
import org.apache.orc.EncryptionAlgorithm;
import org.apache.orc.impl.HadoopShims.KeyMetadata;
import org.apache.orc.impl.KeyProvider;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.rdd.InputFileBlockHolder;

/**
 * What the provider of ORC's keys raises without a session of Spark, in an application that was launched with a key service
 * alone: a line for each call, with its name, the kind of its failure and the message.
 *
 * <p>Run from its source: {@code java -cp <the jar>:<Spark's jars> OrcProviderCheck.java}.
 */
public final class OrcProviderCheck {
  private static final KeyMetadata KEY = new KeyMetadata("pii", 0, EncryptionAlgorithm.AES_CTR_128);

  public static void main(String[] arguments) throws Exception {
    SparkConf launch = new SparkConf(false).set("spark.app.name", "check");
    launch.set("spark.hadoop.parquet.sparkcrypt.key_service", "{\"type\":\"no such type\"}");
    Object[] parts = new Object[SparkEnv.class.getConstructors()[0].getParameterCount()];
    for (int i = 0; i < parts.length; i++) {
      Class<?> kind = SparkEnv.class.getConstructors()[0].getParameterTypes()[i];
      parts[i] = kind == SparkConf.class ? launch : kind == String.class ? "driver" : null;
    }
    SparkEnv.set((SparkEnv) SparkEnv.class.getConstructors()[0].newInstance(parts));
    Class<?> factory = Class.forName("io.sparkcrypt.OrcKeyProviderFactory");
    KeyProvider.Factory providers = (KeyProvider.Factory) factory.getConstructor().newInstance();
    KeyProvider provider = providers.create("sparkcrypt", new Configuration(false), null);

    Map<String, Callable<Object>> calls = new TreeMap<>();
    calls.put("create without a configuration", () -> providers.create("sparkcrypt", null, null));
    calls.put("create a key", () -> provider.createLocalKey(KEY));
    calls.put("create no key", () -> provider.createLocalKey(null));
    calls.put("open without a file", () -> provider.decryptLocalKey(KEY, new byte[1]));
    print(calls);
    calls.clear();
    InputFileBlockHolder.set("file:/x.orc", 0, 1);
    calls.put("open no key", () -> provider.decryptLocalKey(null, new byte[1]));
    calls.put("open nothing", () -> provider.decryptLocalKey(KEY, null));
    print(calls);
    System.exit(0);
  }

  private static void print(Map<String, Callable<Object>> calls) {
    calls.forEach(
        (name, call) -> {
          String outcome = "returned";
          try {
            call.call();
          } catch (Throwable e) {
            outcome = (e instanceof Error ? "Error" : "Exception") + "\t" + String.valueOf(e.getMessage()).replace("\n", " ");
          }
          System.out.println(name + "\t" + outcome);
        });
  }
}

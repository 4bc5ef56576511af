import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.keytools.KmsClient;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;

/**
 * What the door to key services takes a configuration for, without a session of Spark: each line of the input has a launch's
 * setting, and a property as a table's OPTIONS, its TBLPROPERTIES or SET would put it into a session's configuration; each line
 * of the output has the key service that is used, or why it is refused. All of it in base64.
 *
 * <p>Run from its source: {@code java -cp <the jar>:<Spark's jars> PinnedCheck.java}.
 */
public final class PinnedCheck {
  public static void main(String[] arguments) throws Exception {
    SparkConf launch = new SparkConf(false).set("spark.app.name", "check"); // its class asks SparkEnv's while it is loaded
    Constructor<?> constructor = SparkEnv.class.getConstructors()[0];
    Object[] parts = new Object[constructor.getParameterCount()];
    for (int i = 0; i < parts.length; i++) {
      Class<?> kind = constructor.getParameterTypes()[i];
      parts[i] = kind == SparkConf.class ? launch : kind == String.class ? "driver" : null;
    }
    SparkEnv.set((SparkEnv) constructor.newInstance(parts));
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] said = line.split(" ", -1);
      launch.set("spark.hadoop." + text(said[0]), text(said[1]));
      Configuration session = new Configuration(false);
      session.set(text(said[2]), text(said[3]));
      System.out.println(Base64.getEncoder().encodeToString(answer(session).getBytes(StandardCharsets.UTF_8)));
      System.out.flush();
      launch.remove("spark.hadoop." + text(said[0]));
    }
  }

  private static String answer(Configuration session) throws Exception {
    Class<?> door = Class.forName("io.sparkcrypt.BridgeKmsClient");
    KmsClient client = (KmsClient) door.getConstructor().newInstance();
    try {
      // What a file's footer says of an instance of a KMS, and of its address.
      client.initialize(session, "instance", "https://evil.example.com", "token");
    } catch (RuntimeException refused) {
      return "refused: " + refused.getMessage();
    }
    Field used = door.getDeclaredField("keyService");
    used.setAccessible(true);
    return "used: " + used.get(client);
  }

  private static String text(String base64) {
    return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
  }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Reads Parquet files without Spark, as programs do that have sparkcrypt's jar on their class path. Each line of standard input
 * is a command, its words apart by tabs; each is answered by a line, "ok" or "refused" and what was read or said.
 *
 * <p>loader NAME URL…: a class path with these (the jar, folders with site files) over this program's own. What is loaded by it
 * is as new: each one stands for a JVM of its own.
 * <p>jars NAME URL…: what a session adds to a loader, as by ADD JAR: its threads' class loader from then on.
 * <p>configure NAME PROPERTY…: the call of a program.
 * <p>system PROPERTY…: system properties.
 * <p>any name of a reader, NAME FILE COLUMNS PROPERTY…: a read in a loader. A property is "name=value".
 */
public final class OutsideReads {
  /** A way to read a file; what it returns is the rows as text. */
  interface Reader {
    String read(Configuration conf, Path file, String columns) throws Exception;
  }

  private static final Map<String, ClassLoader> LOADERS = new HashMap<>();
  private static final String FACTORY = "parquet.crypto.factory.class";

  private OutsideReads() {}

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err); // what libraries print is no answer
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String answer;
      try {
        answer = "ok\t" + carryOut(line.split("\t", -1));
      } catch (Throwable e) {
        e.printStackTrace();
        answer = "refused\t" + said(e);
      }
      answers.println(answer.replace('\n', ' '));
      answers.flush();
    }
  }

  private static String said(Throwable thrown) {
    StringBuilder text = new StringBuilder();
    for (Throwable e = thrown; e != null; e = e.getCause()) {
      text.append(e).append(" | ");
    }
    return text.toString();
  }

  private static String carryOut(String[] words) throws Throwable {
    List<String> rest = List.of(words).subList(2, words.length);
    switch (words[0]) {
      case "loader" -> LOADERS.put(words[1], loader(rest, OutsideReads.class.getClassLoader()));
      case "jars" -> LOADERS.put(words[1], loader(rest, LOADERS.get(words[1])));
      case "system" -> properties(List.of(words).subList(1, words.length)).forEach(System::setProperty);
      case "configure" -> configure(LOADERS.get(words[1]), properties(rest));
      default -> {
        return read(words[0], LOADERS.get(words[1]), rest);
      }
    }
    return "";
  }

  private static URLClassLoader loader(List<String> paths, ClassLoader parent) throws Exception {
    List<URL> urls = new ArrayList<>();
    for (String path : paths) {
      urls.add(Paths.get(path).toUri().toURL());
    }
    return new URLClassLoader(urls.toArray(URL[]::new), parent);
  }

  private static Map<String, String> properties(List<String> words) {
    Map<String, String> found = new HashMap<>();
    for (String word : words) {
      int sign = word.indexOf('=');
      found.put(word.substring(0, sign), word.substring(sign + 1));
    }
    return found;
  }

  private static void configure(ClassLoader loader, Map<String, String> settings) throws Throwable {
    try {
      loader.loadClass("io.sparkcrypt.Sparkcrypt").getMethod("configure", Map.class).invoke(null, settings);
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }

  private static String read(String reader, ClassLoader loader, List<String> words) throws Exception {
    Thread.currentThread().setContextClassLoader(loader);
    Configuration conf = new Configuration();
    conf.set(FACTORY, "io.sparkcrypt.SchemaTagCryptoFactory");
    properties(words.subList(2, words.size())).forEach(conf::set);
    Reader made = (Reader) Class.forName(reader).getDeclaredConstructor().newInstance();
    return made.read(conf, new Path(words.get(0)), words.get(1));
  }
}

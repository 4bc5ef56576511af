package io.sparkcrypt;

import java.io.File;
import java.io.IOException;
import java.net.URISyntaxException;
import java.util.List;
import java.util.jar.JarFile;
import java.util.stream.Collectors;
import org.slf4j.Logger;

/**
 * A loader of every class of this jar, run when the first of them is used.
 *
 * <p>By default a class is loaded when it is first needed, which is late for error classes: by then Hive may have closed the
 * class loader (SessionState.close closes the session's), or a shared folder may contain another jar. The result would be a
 * NoClassDefFoundError, which does not tell what was refused and why.
 */
final class Preload {
  private static final String PACKAGE = Preload.class.getPackageName().replace('.', '/') + "/";

  static {
    for (String name : names()) {
      try {
        Class.forName(name, false, Preload.class.getClassLoader());
      } catch (ClassNotFoundException | LinkageError e) {
        // Some classes extend Spark's, which are missing if parquet-mr is used alone.
        CleanLog.of(Preload.class).debug("{} is not loaded beforehand", name, e);
      }
    }
  }

  private Preload() {}

  /** Runs the static initialiser, once. */
  static void classes() {}

  private static List<String> names() {
    try (JarFile jar = new JarFile(new File(Preload.class.getProtectionDomain().getCodeSource().getLocation().toURI()))) {
      return jar.stream()
          .map(entry -> entry.getName())
          .filter(name -> name.startsWith(PACKAGE) && name.endsWith(".class"))
          .map(name -> name.substring(0, name.length() - ".class".length()).replace('/', '.'))
          .collect(Collectors.toList());
    } catch (IOException | URISyntaxException | IllegalArgumentException | NullPointerException e) {
      Logger log = CleanLog.of(Preload.class);
      log.debug("the place of the sparkcrypt jar cannot be told; its classes are loaded when they are needed", e);
      return List.of();
    }
  }
}

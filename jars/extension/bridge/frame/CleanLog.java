package io.sparkcrypt;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.regex.Pattern;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.slf4j.Marker;

/** Loggers whose lines control no terminal, whatever is in the names of tables, columns and files that they tell of. */
final class CleanLog {
  /** What sparkcrypt/text.py replaces too, and line feeds, with which a name would begin a line of its own. */
  private static final Pattern CONTROLS =
      Pattern.compile("[\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]");

  private CleanLog() {}

  static Logger of(Class<?> owner) {
    Logger logger = LoggerFactory.getLogger(owner);
    return (Logger) Proxy.newProxyInstance(
        CleanLog.class.getClassLoader(),
        new Class<?>[] {Logger.class},
        (proxy, method, arguments) -> {
          try {
            return method.invoke(logger, clean(arguments));
          } catch (InvocationTargetException e) {
            throw e.getCause();
          }
        });
  }

  private static Object[] clean(Object[] arguments) {
    Object[] cleaned = arguments == null ? new Object[0] : arguments.clone();
    for (int i = 0; i < cleaned.length; i++) {
      if (cleaned[i] instanceof Object[] more) {
        cleaned[i] = clean(more);
      } else if (cleaned[i] != null && !(cleaned[i] instanceof Throwable || cleaned[i] instanceof Marker)) {
        cleaned[i] = CONTROLS.matcher(cleaned[i].toString()).replaceAll("\ufffd");
      }
    }
    return cleaned;
  }
}

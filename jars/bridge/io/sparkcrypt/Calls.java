package io.sparkcrypt;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.function.BiConsumer;

/**
 * Calls by name, for the classes of Spark and Scala that differ between Spark 3.5 (Scala 2.12) and 4.x (2.13): compiled calls
 * would bind to the signatures of one of them.
 */
final class Calls {
  private Calls() {}

  static Object call(Object target, String name, Object... arguments) {
    for (Method method : target.getClass().getMethods()) {
      if (method.getName().equals(name) && takes(method, arguments)) {
        return invoke(method, target, arguments);
      }
    }
    throw new IllegalStateException(target.getClass().getName() + " has no method " + name + " that fits");
  }

  /** scala.Some of a value. */
  static Object some(Object value) {
    try {
      Class<?> option = Class.forName("scala.Option", true, value.getClass().getClassLoader());
      return invoke(option.getMethod("apply", Object.class), null, value);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Goes through a Scala map. */
  static void forEach(Object scalaMap, BiConsumer<Object, Object> body) {
    Object iterator = call(scalaMap, "iterator");
    while ((Boolean) call(iterator, "hasNext")) {
      Object pair = call(iterator, "next");
      body.accept(call(pair, "_1"), call(pair, "_2"));
    }
  }

  private static boolean takes(Method method, Object[] arguments) {
    Class<?>[] types = method.getParameterTypes();
    if (types.length != arguments.length) {
      return false;
    }
    for (int i = 0; i < types.length; i++) {
      if (arguments[i] != null && !types[i].isInstance(arguments[i])) {
        return false;
      }
    }
    return true;
  }

  private static Object invoke(Method method, Object target, Object... arguments) {
    try {
      method.setAccessible(true); // public methods of classes that are not
      return method.invoke(target, arguments);
    } catch (InvocationTargetException e) {
      throw new IllegalStateException(method.getName() + " failed: " + e.getCause(), e.getCause());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}

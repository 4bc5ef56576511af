package io.sparkcrypt;

import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.stream.Collectors;
import scala.Tuple2;
import scala.collection.Iterator;

/**
 * Calls by name of classes of Spark and Scala that differ between Spark 3.5 (Scala 2.12) and 4.x (2.13): compiled calls would
 * bind to the signatures of one of them.
 */
final class Calls {
  /** Public methods by name, for each class that was called: Java copies all methods at each request. */
  private static final ClassValue<Map<String, List<Method>>> METHODS =
      new ClassValue<>() {
        @Override
        protected Map<String, List<Method>> computeValue(Class<?> type) {
          return Arrays.stream(type.getMethods()).collect(Collectors.groupingBy(Method::getName));
        }
      };

  private Calls() {}

  static Object call(Object target, String name, Object... arguments) {
    for (Method method : methods(target, name)) {
      if (takes(method, arguments)) {
        return invoke(method, target, arguments);
      }
    }
    throw new IllegalStateException(target.getClass().getName() + " has no method " + name + " that fits");
  }

  /** Returns the result of a method without arguments; null if the object has no method of this name. */
  static Object callIfPresent(Object target, String name) {
    for (Method method : methods(target, name)) {
      if (method.getParameterCount() == 0) {
        return invoke(method, target);
      }
    }
    return null;
  }

  /** Returns the value of an object's private field. */
  static Object field(Object target, String name) {
    try {
      Field field = target.getClass().getDeclaredField(name);
      field.setAccessible(true);
      return field.get(target);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(target.getClass().getName() + " has no field " + name, e);
    }
  }

  /** Sets an object's private field. */
  static void setField(Object target, String name, Object value) {
    try {
      Field field = target.getClass().getDeclaredField(name);
      field.setAccessible(true);
      field.set(target, value);
    } catch (ReflectiveOperationException | RuntimeException e) {
      throw new IllegalStateException(target.getClass().getName() + " has no field " + name + " that takes this", e);
    }
  }

  /** Returns scala.Some of a value. */
  static Object some(Object value) {
    try {
      Class<?> option = Class.forName("scala.Option", true, value.getClass().getClassLoader());
      return invoke(option.getMethod("apply", Object.class), null, value);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns scala.None, from the class loader of a given object. */
  static Object none(Object beside) {
    try {
      return invoke(Class.forName("scala.Option", true, beside.getClass().getClassLoader()).getMethod("empty"), null);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns the value of a Scala Option, or null. */
  static Object orNull(Object option) {
    return (Boolean) call(option, "isDefined") ? call(option, "get") : null;
  }

  /** Returns the elements of a Scala collection. */
  static List<Object> list(Object scalaCollection) {
    List<Object> found = new ArrayList<>();
    Iterator<?> iterator = (Iterator<?>) call(scalaCollection, "iterator");
    while (iterator.hasNext()) {
      found.add(iterator.next());
    }
    return found;
  }

  /** Returns a Scala list of these elements. */
  static Object scalaList(List<Object> elements) {
    try {
      Method convert = Class.forName("scala.collection.JavaConverters").getMethod("asScalaBuffer", List.class);
      return call(invoke(convert, null, elements), "toList");
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns a Scala map with more entries; the map itself if it has them already. */
  static Object with(Object scalaMap, Map<String, ?> more) {
    Object changed = scalaMap;
    for (Map.Entry<String, ?> entry : more.entrySet()) {
      if (!entry.getValue().equals(orNull(call(changed, "get", entry.getKey())))) {
        changed = call(changed, "$plus", new Tuple2<>(entry.getKey(), entry.getValue()));
      }
    }
    return changed;
  }

  /** Returns a Scala map without these keys; the map itself if it has none of them. */
  static Object without(Object scalaMap, Collection<String> names) {
    Object changed = scalaMap;
    for (String name : names) {
      if ((Boolean) call(changed, "contains", name)) {
        changed = call(changed, "$minus", name);
      }
    }
    return changed;
  }

  /** Returns a copy of a case class with one value replaced. */
  static Object copy(Object product, Object old, Object replacement) {
    Object[] values = values(product, old, replacement);
    for (Method method : methods(product, "copy")) {
      if (method.getParameterCount() == values.length) {
        return invoke(method, product, values);
      }
      if (method.getParameterCount() == values.length + 1) { // its second parameter list: the session
        Object[] more = Arrays.copyOf(values, values.length + 1);
        more[values.length] = call(product, "sparkSession");
        return invoke(method, product, more);
      }
    }
    throw new IllegalStateException(product.getClass().getName() + " has no method copy that fits");
  }

  /** Returns the values of a case class with one of them replaced. */
  static Object[] values(Object product, Object old, Object replacement) {
    Object[] values = new Object[(Integer) call(product, "productArity")];
    for (int i = 0; i < values.length; i++) {
      Object value = call(product, "productElement", i);
      values[i] = value == old ? replacement : value;
    }
    return values;
  }

  /** Creates an object by the constructor that takes these arguments. */
  static Object make(Class<?> type, Object... arguments) {
    for (Constructor<?> constructor : type.getConstructors()) {
      if (takes(constructor, arguments)) {
        try {
          return constructor.newInstance(arguments);
        } catch (InvocationTargetException e) {
          throw new IllegalStateException(type.getName() + " failed: " + e.getCause(), e.getCause());
        } catch (ReflectiveOperationException e) {
          throw new IllegalStateException(e);
        }
      }
    }
    throw new IllegalStateException(type.getName() + " has no constructor that fits");
  }

  /** Calls a function with each key and value of a Scala map. */
  static void forEach(Object scalaMap, BiConsumer<Object, Object> body) {
    for (Object pair : list(scalaMap)) {
      body.accept(((Tuple2<?, ?>) pair)._1(), ((Tuple2<?, ?>) pair)._2());
    }
  }

  private static List<Method> methods(Object target, String name) {
    return METHODS.get(target.getClass()).getOrDefault(name, List.of());
  }

  private static boolean takes(Executable called, Object[] arguments) {
    Class<?>[] types = called.getParameterTypes();
    if (types.length != arguments.length) {
      return false;
    }
    for (int i = 0; i < types.length; i++) {
      if (arguments[i] != null && !types[i].isInstance(arguments[i]) && !isInt(types[i], arguments[i])) {
        return false;
      }
    }
    return true;
  }

  private static boolean isInt(Class<?> type, Object argument) {
    return type == int.class && argument instanceof Integer;
  }

  private static Object invoke(Method method, Object target, Object... arguments) {
    try {
      method.setAccessible(true); // public methods of non-public classes
      return method.invoke(target, arguments);
    } catch (InvocationTargetException e) {
      throw new IllegalStateException(method.getName() + " failed: " + e.getCause(), e.getCause());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}

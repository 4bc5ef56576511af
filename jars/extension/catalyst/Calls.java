package io.sparkcrypt;

import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterable;
import scala.collection.Iterator;
import scala.collection.JavaConverters;

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

  /** Sets an object's private field, which a class declares that it is of. */
  static void setField(Class<?> owner, Object target, String name, Object value) {
    try {
      Field field = owner.getDeclaredField(name);
      field.setAccessible(true);
      field.set(target, value);
    } catch (ReflectiveOperationException | RuntimeException e) {
      throw new IllegalStateException(owner.getName() + " has no field " + name + " that takes this", e);
    }
  }

  /** Returns the value of a Scala Option, which the caller knows the type of, or null. */
  @SuppressWarnings("unchecked")
  static <T> T orNull(Object option) {
    return ((Option<T>) option).isDefined() ? ((Option<T>) option).get() : null;
  }

  /** Returns the elements of a Scala collection, which the caller knows the type of. */
  @SuppressWarnings("unchecked")
  static <T> List<T> list(Object scalaCollection) {
    List<T> found = new ArrayList<>();
    Iterator<T> iterator = ((Iterable<T>) scalaCollection).iterator();
    while (iterator.hasNext()) {
      found.add(iterator.next());
    }
    return found;
  }

  /** Returns a Scala list of these elements. */
  @SuppressWarnings("deprecation") // what replaces it is not in Spark 3.5
  static Object scalaList(List<?> elements) {
    return JavaConverters.asScalaBuffer(elements).toList();
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
  @SuppressWarnings("unchecked") // a case class has no other copies
  static <T> T copy(T product, Object old, Object replacement) {
    Object[] values = values(product, old, replacement);
    for (Method method : methods(product, "copy")) {
      if (method.getParameterCount() == values.length) {
        return (T) invoke(method, product, values);
      }
      if (method.getParameterCount() == values.length + 1) { // its second parameter list: the session
        Object[] more = Arrays.copyOf(values, values.length + 1);
        more[values.length] = call(product, "sparkSession");
        return (T) invoke(method, product, more);
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
  static <T> T make(Class<T> type, Object... arguments) {
    for (Constructor<?> constructor : type.getConstructors()) {
      if (takes(constructor, arguments)) {
        try {
          return type.cast(constructor.newInstance(arguments));
        } catch (InvocationTargetException e) {
          throw new IllegalStateException(type.getName() + " failed: " + e.getCause(), e.getCause());
        } catch (ReflectiveOperationException e) {
          throw new IllegalStateException(e);
        }
      }
    }
    throw new IllegalStateException(type.getName() + " has no constructor that fits");
  }

  /** Returns a copy of a Scala map, whose types the caller knows. */
  static <K, V> Map<K, V> map(Object scalaMap) {
    Map<K, V> copied = new LinkedHashMap<>();
    Calls.<Tuple2<K, V>>list(scalaMap).forEach(entry -> copied.put(entry._1(), entry._2()));
    return copied;
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
      if (arguments[i] != null && !types[i].isInstance(arguments[i]) && !isPrimitive(types[i], arguments[i])) {
        return false;
      }
    }
    return true;
  }

  private static boolean isPrimitive(Class<?> type, Object argument) {
    return type == int.class && argument instanceof Integer || type == boolean.class && argument instanceof Boolean;
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

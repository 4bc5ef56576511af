import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;

/**
 * What the jar's Place makes of the cases in a file of JSON: the same file, with its own answers in place of the expected ones.
 *
 * <p>Run from its source: {@code java -cp <the jar>:<Spark's jars> PlaceCheck.java <the file>}.
 */
public final class PlaceCheck {
  private static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] arguments) throws Exception {
    JsonNode cases = JSON.readTree(new File(arguments[0]));
    ObjectNode answers = JSON.createObjectNode();
    ArrayNode forms = answers.putArray("forms");
    for (JsonNode form : cases.get("forms")) {
      Object place = place(form.get(0).asText());
      ArrayNode answer = forms.addArray().add(form.get(0));
      for (String part : List.of("scheme", "authority", "path")) {
        answer.add((String) method(place, part).invoke(place));
      }
    }
    List<Object> aliases = new ArrayList<>();
    Constructor<?> make = Class.forName("io.sparkcrypt.Place$Alias").getDeclaredConstructors()[0];
    make.setAccessible(true);
    for (java.util.Iterator<String> names = cases.get("aliases").fieldNames(); names.hasNext(); ) {
      String name = names.next();
      aliases.add(make.newInstance(place(name), place(cases.get("aliases").get(name).asText())));
    }
    answers.set("aliases", cases.get("aliases"));
    ArrayNode aliased = answers.putArray("aliased");
    for (JsonNode one : cases.get("aliased")) {
      Object place = place(one.get(0).asText());
      Object real = method(place, "without", List.class).invoke(place, aliases);
      aliased.addArray().add(one.get(0)).add((String) method(real, "text").invoke(real));
    }
    ArrayNode within = answers.putArray("within");
    for (JsonNode one : cases.get("within")) {
      Object place = place(one.get(0).asText());
      Object root = place(one.get(1).asText());
      within.addArray().add(one.get(0)).add(one.get(1)).add((Boolean) method(place, "isWithin", root.getClass()).invoke(place, root));
    }
    System.out.println(JSON.writeValueAsString(answers));
  }

  private static Object place(String text) throws Exception {
    Method of = Class.forName("io.sparkcrypt.Place").getDeclaredMethod("of", String.class);
    of.setAccessible(true);
    return of.invoke(null, text);
  }

  private static Method method(Object place, String name, Class<?>... types) throws Exception {
    Method found = place.getClass().getDeclaredMethod(name, types);
    found.setAccessible(true);
    return found;
  }
}

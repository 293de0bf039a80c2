// Serves the files of a folder: java FileServer.java FOLDER PORT
import com.sun.net.httpserver.HttpServer;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;

class FileServer {
    public static void main(String[] args) throws Exception {
        Path root = Path.of(args[0]);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[1])), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> {
            Path file = root.resolve(exchange.getRequestURI().getPath().substring(1)).normalize();
            boolean found = file.startsWith(root) && Files.isRegularFile(file);
            exchange.sendResponseHeaders(found ? 200 : 404, found ? Files.size(file) : -1);
            try (OutputStream body = exchange.getResponseBody()) {
                if (found) Files.copy(file, body);
            }
        });
        server.start();
    }
}

package headgate;

import java.net.SocketException;
import py4j.DefaultGatewayServerListener;
import py4j.Py4JServerConnection;

/**
 * Makes Py4J send answers at once. An answer of more than 8 KB is sent in pieces, and the second piece would wait for the
 * acknowledgement of the first one, which Linux delays by 40 ms if it expects the other side to send soon.
 */
public final class PromptConnections extends DefaultGatewayServerListener {
    public void connectionStarted(Py4JServerConnection connection) {
        try {
            connection.getSocket().setTcpNoDelay(true);
        } catch (SocketException closed) {
            // Then no caller waits for an answer.
        }
    }
}

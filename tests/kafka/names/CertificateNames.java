import java.io.FileInputStream;
import java.io.PrintStream;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;

/** Prints the subject of each certificate file as Kafka's principal builder reads it, one per line. */
public class CertificateNames {
    public static void main(String[] files) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (String file : files) {
            try (FileInputStream in = new FileInputStream(file)) {
                X509Certificate certificate = (X509Certificate) factory.generateCertificate(in);
                out.println(certificate.getSubjectX500Principal().getName());
            }
        }
    }
}

package security

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"flightline/shared/testenv"
	"flightline/shared/testenv/program"
	"flightline/shared/tlsconfig"
	"flightline/shared/tlsconfig/certstest"
)

// httpsOf is a client that believes the authority, and shows a certificate if
// one is named.
func httpsOf(t *testing.T, a *certstest.Authority, cert, key string) *http.Client {
	t.Helper()
	config, err := tlsconfig.Client{CA: a.CA(), Cert: cert, Key: key}.Config()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// answers is that of the answer, 0 for no answer.
func answers(client *http.Client, address string) int {
	res, err := client.Get(address)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// With --tls-cert nothing of dev speaks plain: HTTP, metrics, NATS. What finds
// it by its folder believes what it shows; others need to know the authority.
func TestDevOverTLS(t *testing.T) {
	t.Parallel()
	a := certstest.New(t)
	cert, key := a.Issue("dev", "localhost")
	s := program.New(t)
	d := s.Start("dev", "--tls-cert", cert, "--tls-key", key, "--metrics-listen", "127.0.0.1:0")
	metrics, url := d.Line("flightline metrics: "), d.Line(program.Ready)
	if !strings.HasPrefix(metrics, "https://localhost:") || !strings.HasPrefix(url, "https://localhost:") {
		t.Errorf("got %s and %s, want https and the certificate's name", metrics, url)
	}
	d.Line("first job ")
	if got := s.OK("runsync", "echo", `{"n":1}`); !strings.Contains(got, "COMPLETED") {
		t.Errorf("got %q, want COMPLETED", got)
	}
	s.OK("endpoint", "create", "shell")
	w := s.Start("worker", "shell", "--", "cat")
	w.Line(program.WorkerReady)
	s.OK("runsync", "shell", `{"n":2}`)
	s.OK("doctor")
	var env struct{ APIKey, NATSURL, TLSCert string }
	program.Decode(t, s.OK("env", "-o", "json"), &env)
	if !strings.HasPrefix(env.NATSURL, "tls://localhost:") || env.TLSCert != cert {
		t.Errorf("got %+v, want NATS over TLS and the certificate", env)
	}
	client := httpsOf(t, a, "", "")
	if got := answers(client, metrics); got != http.StatusOK {
		t.Errorf("metrics: got %d, want 200", got)
	}
	for _, address := range []string{metrics, url + "/healthz"} {
		if got := answers(http.DefaultClient, address); got != 0 {
			t.Errorf("%s: got %d, want no answer for who does not know the authority", address, got)
		}
	}
	streamsOverTLS(t, client, url, env.APIKey)

	stranger := program.New(t)
	stranger.Environ = append(stranger.Environ, "FLIGHTLINE_URL="+url, "FLIGHTLINE_API_KEY="+env.APIKey, "FLIGHTLINE_RETRY_TIMEOUT=0s")
	if code, _, errs := stranger.Run("runsync", "echo", "{}"); code != 3 || !strings.Contains(errs, "certificate signed by unknown authority") {
		t.Errorf("without the authority: got %d, %s", code, errs)
	}
	stranger.OK("runsync", "echo", "{}", "--ca", a.CA())
	stranger.Environ = append(stranger.Environ, "FLIGHTLINE_CA="+a.CA())
	stranger.OK("runsync", "echo", "{}")
	stranger.OK("healthcheck", "--url", url)
	w.Stop(program.StopWithin)
	d.Stop(program.StopWithin)
}

// streamsOverTLS reads the first event of the log, which stays open.
func streamsOverTLS(t *testing.T, client *http.Client, url, key string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v2/echo/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", "0")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("events: got %d, %q, %v, want a first line", res.StatusCode, line, err)
	}
}

// With --tls-client-ca only those come in who show a certificate, also for
// metrics and health; scenarios of the contract hold so, and a certificate
// that is replaced is shown without a restart.
func TestServeOverMutualTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	a := certstest.New(t)
	cert, key := a.Issue("server", "flightline.example", "127.0.0.1")
	clientCert, clientKey := a.Issue("client")
	s, cfg := program.New(t), testenv.NewServer(t).Config()
	s.Environ = append(s.Environ, "NATS_URL="+cfg.URL, "FLIGHTLINE_NATS_USER="+cfg.User, "FLIGHTLINE_NATS_PASSWORD="+cfg.Password,
		"FLIGHTLINE_BOOTSTRAP_KEY="+program.AdminKey, "FLIGHTLINE_API_KEY="+program.AdminKey, "FLIGHTLINE_CA="+a.CA(),
		"FLIGHTLINE_TLS_CERT="+cert, "FLIGHTLINE_TLS_KEY="+key, "FLIGHTLINE_TLS_CLIENT_CA="+a.CA())
	d := s.Start("serve", "all", "--metrics-listen", "127.0.0.1:0", "--webhook-allow-http", "--webhook-allow-networks", "127.0.0.0/8")
	metrics, url := d.Line("flightline metrics: "), d.Line(program.Ready)
	without, with := httpsOf(t, a, "", ""), httpsOf(t, a, clientCert, clientKey)
	for _, address := range []string{metrics, url + "/readyz"} {
		if got := [2]int{answers(without, address), answers(with, address)}; got != [2]int{0, http.StatusOK} {
			t.Errorf("%s: got %v, want no answer without a certificate, and 200 with one", address, got)
		}
	}
	s.Environ = append(s.Environ, "FLIGHTLINE_URL="+url, "FLIGHTLINE_LISTEN="+strings.TrimPrefix(url, "https://"))
	if code, _, _ := s.Run("healthcheck"); code != 1 {
		t.Errorf("healthcheck without a certificate: got %d, want 1", code)
	}
	s.Environ = append(s.Environ, "FLIGHTLINE_CLIENT_CERT="+clientCert, "FLIGHTLINE_CLIENT_KEY="+clientKey)
	s.OK("healthcheck")
	s.OK("conform", "--make", "--only", "*stream*", "--only", "runsync*", "--only", "webhook", "--only", "worker*")

	before := serialOf(t, with, url)
	a.Issue("server", "flightline.example")
	s.OK("healthcheck") // whatever the file says, and is shown
	s.Eventually("another certificate is shown", func() bool {
		config := with.Transport.(*http.Transport).TLSClientConfig.Clone()
		config.ServerName = "flightline.example"
		serial := serialOf(t, &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}, url)
		return serial != "" && serial != before
	})
	d.Stop(program.Soon)
}

// serialOf is the number of the certificate that the server shows, "" if it is
// not believed.
func serialOf(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	res, err := client.Get(url + "/healthz")
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.TLS.PeerCertificates[0].SerialNumber.String()
}

func TestTLSFilesThatWillNotDoAreToldAtTheStart(t *testing.T) {
	t.Parallel()
	a := certstest.New(t)
	cert, key := a.Issue("server")
	foreign, foreignKey := a.Issue("foreign", "flightline.example")
	_, public := a.Issue("public")
	if err := os.Chmod(public, 0o644); err != nil {
		t.Fatal(err)
	}
	s := program.New(t)
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"a missing file":             {[]string{"--tls-cert", "nowhere.pem", "--tls-key", key}, "nowhere.pem"},
		"the key of another":         {[]string{"--tls-cert", cert, "--tls-key", foreignKey}, "does not match"},
		"a key for everybody":        {[]string{"--tls-cert", cert, "--tls-key", public}, "anybody on this machine may read it"},
		"no key":                     {[]string{"--tls-cert", cert}, "go together"},
		"a name that is not of here": {[]string{"--tls-cert", foreign, "--tls-key", foreignKey}, "for neither"},
	} {
		if code, _, errs := s.Run(append([]string{"dev"}, test.args...)...); code != 2 || !strings.Contains(errs, test.says) {
			t.Errorf("%s: got code %d and %q, want 2 and %q", name, code, errs, test.says)
		}
	}
}

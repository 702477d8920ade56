package s3

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"flightline/shared/netguard"
	"flightline/shared/worker"
)

// Uploads to a real server are tested in e2e/s3, a module of its own.

func TestOpen(t *testing.T) {
	full := worker.S3Config{AccessID: "id", AccessSecret: "hush", BucketName: "b", EndpointURL: "https://s3.example.com/"}
	with := func(change func(*worker.S3Config)) worker.S3Config {
		c := full
		change(&c)
		return c
	}
	tests := map[string]struct {
		cfg  worker.S3Config
		want string // of the client's address; "" means ErrConfig
	}{
		"https":         {full, "https://s3.example.com"},
		"http and port": {with(func(c *worker.S3Config) { c.EndpointURL = "http://127.0.0.1:9000" }), "http://127.0.0.1:9000"},
		"no address":    {with(func(c *worker.S3Config) { c.EndpointURL = "" }), ""},
		"no scheme":     {with(func(c *worker.S3Config) { c.EndpointURL = "127.0.0.1:9000" }), ""},
		"other scheme":  {with(func(c *worker.S3Config) { c.EndpointURL = "ftp://s3.example.com" }), ""},
		"a path":        {with(func(c *worker.S3Config) { c.EndpointURL = "https://s3.example.com/b" }), ""},
		"a password":    {with(func(c *worker.S3Config) { c.EndpointURL = "https://id:hush@s3.example.com" }), ""},
		"no bucket":     {with(func(c *worker.S3Config) { c.BucketName = "" }), ""},
		"no id":         {with(func(c *worker.S3Config) { c.AccessID = "" }), ""},
		"no secret":     {with(func(c *worker.S3Config) { c.AccessSecret = "" }), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b, err := open(tt.cfg, "job", nil)
			if tt.want == "" {
				if !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "hush") {
					t.Errorf("got %v, want an ErrConfig without the secret", err)
				}
				return
			}
			if err != nil || b.Client.EndpointURL().String() != tt.want || b.Name != "b" {
				t.Errorf("got %+v, %v, want a client of %s", b, err, tt.want)
			}
		})
	}
}

func TestKeysStayBelowTheJobs(t *testing.T) {
	b := &Bucket{job: "sync-1"}
	for name, want := range map[string]string{
		"a.png": "sync-1/a.png", "frames/1.png": "sync-1/frames/1.png", "..a": "sync-1/..a",
		"": "", ".": "", "..": "", "../x": "", "a/../../x": "", "/x": "", "a//b": "", "a/": "",
	} {
		got, err := b.Key(name)
		if got != want || (want == "") != errors.Is(err, ErrName) {
			t.Errorf("%q: got %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestAJobWithoutS3Config(t *testing.T) {
	if _, err := From(&worker.Job{ID: "1"}); !errors.Is(err, ErrNoConfig) {
		t.Errorf("From: got %v, want ErrNoConfig", err)
	}
	if _, _, err := Client(&worker.Job{ID: "1"}); !errors.Is(err, ErrNoConfig) {
		t.Errorf("Client: got %v, want ErrNoConfig", err)
	}
	if _, err := Upload(t.Context(), &worker.Job{ID: "1"}, "a", nil, 0, ""); !errors.Is(err, ErrNoConfig) {
		t.Errorf("Upload: got %v, want ErrNoConfig", err)
	}
}

// A caller names the server, and the worker connects from inside its network.
func TestAJobsServerIsNotInsideTheWorkersNetwork(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	upload := func(host string, allowed ...netip.Prefix) error {
		c := worker.S3Config{AccessID: "id", AccessSecret: "hush", BucketName: "bucket", EndpointURL: "http://" + host + ":" + port}
		b, err := open(c, "job", allowed)
		if err != nil {
			return err
		}
		_, err = b.Upload(t.Context(), "a", strings.NewReader("text"), 4, "")
		return err
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1"} {
		err := upload(host)
		if !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: got %v, want an ErrConfig that names no address", host, err)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("got %d requests at the loopback server, want none", n)
	}
	err = upload("127.0.0.1", netip.MustParsePrefix("127.0.0.0/8"))
	if err == nil || errors.Is(err, ErrConfig) || asked.Load() == 0 {
		t.Errorf("an allowed network: got %v after %d requests, want the server's refusal", err, asked.Load())
	}
}

// The body of such an answer has no end, and the end of a job would not end it.
func TestAServerThatSwitchesProtocolsHoldsUpNoUpload(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "x")
		w.WriteHeader(http.StatusSwitchingProtocols)
		_, _, _ = http.NewResponseController(w).Hijack()
	}))
	defer server.Close()
	c := worker.S3Config{AccessID: "id", AccessSecret: "hush", BucketName: "bucket", EndpointURL: server.URL}
	b, err := open(c, "job", []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Upload(t.Context(), "a", strings.NewReader("text"), 4, ""); !errors.Is(err, netguard.ErrSwitched) {
		t.Errorf("got %v, want %v", err, netguard.ErrSwitched)
	}
}

// A proxy of the environment would connect to what nothing here judges.
func TestNoProxyIsAsked(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") }))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	b, err := open(worker.S3Config{AccessID: "id", AccessSecret: "hush", BucketName: "bucket", EndpointURL: "http://10.0.0.1"}, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Upload(t.Context(), "a", strings.NewReader("text"), 4, ""); !errors.Is(err, ErrConfig) {
		t.Errorf("got %v, want an ErrConfig", err)
	}
}

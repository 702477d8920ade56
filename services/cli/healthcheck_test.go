package cli_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"flightline/services/cli"
	"flightline/shared/tlsconfig"
	"flightline/shared/tlsconfig/certstest"
)

func TestHealthcheck(t *testing.T) {
	status := 200
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("got %s, want /readyz", r.URL.Path)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	tests := map[string]struct {
		status int
		args   []string
		listen string
		code   int
	}{
		"ready":                        {200, []string{"--url", server.URL + "/"}, "", 0},
		"not ready":                    {503, []string{"--url", server.URL}, "", 1},
		"nobody there":                 {200, []string{"--url", "http://127.0.0.1:1"}, "", 1},
		"where the process listens":    {200, nil, "127.0.0.1:" + port, 0},
		"which is everywhere":          {200, nil, "0.0.0.0:" + port, 0},
		"which is everywhere, briefly": {200, nil, ":" + port, 0},
	}
	data, none := t.TempDir(), t.TempDir()
	if err := (cli.Running{URL: server.URL}).Announce(data); err != nil {
		t.Fatal(err)
	}
	t.Chdir(none)
	for _, args := range [][]string{{"--data", data}, {"--data", none}} {
		tests["of a dev: "+args[1]] = struct {
			status int
			args   []string
			listen string
			code   int
		}{200, args, "127.0.0.1:1", map[string]int{data: 0, none: 1}[args[1]]}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status = test.status
			var out, errs bytes.Buffer
			code := cli.Run(t.Context(), cli.Config{
				Env: map[string]string{"FLIGHTLINE_LISTEN": test.listen}, In: strings.NewReader(""), Out: &out, Err: &errs,
			}, append([]string{"healthcheck"}, test.args...))
			if code != test.code {
				t.Errorf("got code %d, want %d\n%s%s", code, test.code, &out, &errs)
			}
		})
	}
}

func TestHealthcheckFindsTheRunningDevByItself(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	data := t.TempDir()
	if err := (cli.Running{URL: server.URL}).Announce(data); err != nil {
		t.Fatal(err)
	}
	if got := run(t, map[string]string{"FLIGHTLINE_DATA": data}, "", "healthcheck"); got.code != 0 {
		t.Errorf("got %d %s, want the dev found", got.code, got.err)
	}
}

// While the files are replaced, or for good if the new ones do not fit, a server
// shows what it has: that makes nobody unhealthy.
func TestHealthcheckBelievesTheProcessBesideItWhateverItShows(t *testing.T) {
	a, other := certstest.New(t), certstest.New(t)
	cert, key := a.Issue("server", "flightline.example")
	shown, err := tlsconfig.Open(tlsconfig.Files{Cert: cert, Key: key, ClientCA: a.CA()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = shown.Config()
	server.StartTLS()
	t.Cleanup(server.Close)
	next, _ := other.Issue("next", "another.example")
	clientCert, clientKey := a.Issue("client")
	for _, file := range []string{cert, next, "nowhere.pem"} {
		env := map[string]string{
			"FLIGHTLINE_LISTEN": server.Listener.Addr().String(), "FLIGHTLINE_TLS_CERT": file,
			"FLIGHTLINE_CLIENT_CERT": clientCert, "FLIGHTLINE_CLIENT_KEY": clientKey,
		}
		if got := run(t, env, "", "healthcheck"); got.code != 0 {
			t.Errorf("%s: got %d %s, want ok", file, got.code, got.err)
		}
		if got := run(t, env, "", "healthcheck", "--url", server.URL); got.code != 1 || !strings.Contains(got.err, "certificate") {
			t.Errorf("%s, with an address: got %d %s, want it not believed", file, got.code, got.err)
		}
	}
}

package security

import (
	"net/http"
	"strings"
	"testing"

	"flightline/shared/testenv/program"
)

// A page whose name was pointed at 127.0.0.1 (DNS rebinding) reads neither the API
// nor metrics of a dev that listens on loopback.
func TestDevAnswersLoopbackNamesOnly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want int // for the host flightline.test
	}{
		"by default":    {nil, http.StatusBadRequest},
		"allowed names": {[]string{"--host", "flightline.test,other.test"}, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := program.New(t)
			s.Environ = append(s.Environ, "FLIGHTLINE_METRICS_LISTEN=127.0.0.1:0")
			d := s.Start(append([]string{"dev", "--no-demo"}, tc.args...)...)
			metrics := d.Line("flightline metrics: ")
			url := d.Line(program.Ready)
			for host, want := range map[string]int{
				"": http.StatusOK, "localhost": http.StatusOK, "flightline.test": tc.want, "evil.example": http.StatusBadRequest,
			} {
				for _, at := range []string{url + "/healthz", metrics} {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Host = host
					res, err := http.DefaultClient.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					if _ = res.Body.Close(); res.StatusCode != want {
						t.Errorf("%s as %q: got %d, want %d", at, host, res.StatusCode, want)
					}
				}
			}
		})
	}
	s := program.New(t)
	if code, _, said := s.Run("dev", "--host", "http://x"); code != 2 || !strings.Contains(said, `--host "http://x": must be names`) {
		t.Errorf("got code %d and %s, want a usage error", code, said)
	}
}

package app

import (
	"bytes"
	"encoding/json"
	"log"
	"os"
	"testing"
)

// As of a client that speaks no TLS, such as a probe of a port.
func TestWhatTheStandardLibraryPrintsIsALineOfTheLog(t *testing.T) {
	printed, flags := log.Print, log.Flags() //nolint:forbidigo // as net/http does
	t.Cleanup(func() {
		log.SetOutput(os.Stderr) //nolint:forbidigo // as it was
		log.SetFlags(flags)      //nolint:forbidigo // as it was
	})
	for _, level := range []string{"debug", "info"} {
		var out bytes.Buffer
		if _, err := newLogger(&out, level, "json"); err != nil {
			t.Fatal(err)
		}
		printed("http: TLS handshake error")
		var line struct {
			Level string `json:"level"`
			Msg   string `json:"msg"`
		}
		switch err := json.Unmarshal(out.Bytes(), &line); {
		case level == "info" && out.Len() > 0:
			t.Errorf("%s: got %q, want nothing", level, &out)
		case level == "debug" && (err != nil || line.Level != "DEBUG" || line.Msg != "http: TLS handshake error"):
			t.Errorf("%s: got %q, want a line of JSON", level, &out)
		}
	}
}

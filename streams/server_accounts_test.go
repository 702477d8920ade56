package streams

import (
	"slices"
	"strings"
	"testing"

	"flightline/shared/bus"
)

// Two imports that match a request would both pass it on: it would be done, and
// answered, twice.
func TestNoRequestOfAGuestIsImportedTwice(t *testing.T) {
	for _, endpoint := range []string{"*", "mine"} {
		for _, r := range guests() {
			p := PermissionsOf(Config{Partitions: 2}, r, endpoint)
			imports := widest(p.Publish)
			for i, a := range imports {
				for _, b := range imports[i+1:] {
					if overlap(a, b) {
						t.Errorf("%s of %s: %s and %s overlap", r, endpoint, a, b)
					}
				}
			}
			for _, subject := range p.Publish {
				if !slices.ContainsFunc(imports, func(i string) bool { return bus.Covers(i, subject) }) {
					t.Errorf("%s of %s: no import of %s", r, endpoint, subject)
				}
			}
		}
	}
}

// A worker of one endpoint has nothing denied: what it may not do it is not
// given. One of all endpoints is, and the server checks that after its mapping.
func TestAGuestsPermissionsAreThoseAfterTheMapping(t *testing.T) {
	s := ServerConfig{Passwords: map[Role]string{RoleWorker: "w"}, Endpoint: "mine"}
	if got := s.String(); strings.Contains(got, "deny") || !strings.Contains(got, "  WORKER {") || strings.Contains(got, "  READER {") {
		t.Errorf("got\n%s\nwant an account of workers, none of readers, and nothing denied", got)
	}
	s.Endpoint = "*"
	if got, want := s.String(), `"imported.JS.API.STREAM.MSG.DELETE.KV_keys"`; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant %s denied", got, want)
	}
}

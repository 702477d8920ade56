package pod

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckVolumePath(t *testing.T) {
	t.Parallel()
	const root = "/srv/volumes"
	for _, tt := range []struct {
		root, path string
		want       string // part of the error, "" for none
	}{
		{"", "", ""},
		{root, "", ""},
		{root, "/srv/volumes/a", ""},
		{root, "/srv/volumes/..a", ""},
		{"", "/srv/volumes/a", "no --volume-root"},
		{"", "/", "no --volume-root"},
		{root, "/srv/volumes", "directly below"},
		{root, "/srv/volumes/a/b", "directly below"},
		{root, "/srv/volumes2", "directly below"},
		{root, "/srv", "directly below"},
		{root, "/", "directly below"},
		{root, "/var/run/docker.sock", "directly below"},
		{"/", "/etc", "directly below"},
		{"/", "/", "directly below"},
		{root, "/srv/volumes/../../etc", "without '..'"},
		{root, "/srv/volumes/a/", "without '..'"},
		{root, "/srv/volumes//a", "without '..'"},
		{root, "/srv/volumes/.", "without '..'"},
		{root, "srv/volumes/a", "absolute"},
		{root, "/srv/volumes/a:ro", "absolute"},
	} {
		err := CheckVolumePath(tt.root, tt.path)
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%q below %q: got %v, want %q", tt.path, tt.root, err, tt.want)
		}
	}
}

func TestCheckCapabilities(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"CHOWN": true, "ALL": true, "SYS_ADMIN": true, "CAP_CHOWN": false, "chown": false, "": false, "A": false,
		"CHOWN,SETUID": false, "CHOWN KILL": false, "CH\nOWN": false, "_X": false, strings.Repeat("A", 41): false,
	} {
		err := CheckCapabilities("capabilities", []string{"KILL", name})
		if (err == nil) != good || !good && !strings.HasPrefix(err.Error(), "capabilities[1] must be") {
			t.Errorf("%q: got %v, want allowed %v", name, err, good)
		}
	}
	if err := CheckCapabilities("capabilities", make([]string, MaxCapabilities+1)); !errors.Is(err, ErrInvalid) {
		t.Errorf("too many: got %v", err)
	}
}

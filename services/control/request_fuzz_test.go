package control

import (
	"encoding/json"
	"errors"
	"path"
	"strings"
	"testing"

	"flightline/shared/pod"
)

// What is made of a body is good, or names the field that is not.
func FuzzBodies(f *testing.F) {
	for _, text := range []string{
		`{"imageName":"i","env":{"A":"1"},"ports":["80/http"],"capabilities":["CHOWN"]}`, `{"driver":"process","dockerStartCmd":["sh","-c","id"]}`,
		`{"name":"n","size":1,"path":"/srv/volumes/a"}`, `{"name":"n","size":1,"path":"/srv/volumes/../x"}`, `{"env":{"TOKEN":"***"}}`,
		`{"gpuCount":1e9,"vcpuCount":-1}`, `{"name":null}`, `{"ports":["0/tcp"]}`,
	} {
		f.Add([]byte(text))
	}
	const root = "/srv/volumes"
	f.Fuzz(func(t *testing.T, data []byte) {
		refused := func(what string, err error) bool {
			if err != nil && !errors.Is(err, pod.ErrInvalid) {
				t.Errorf("%s: got %v, want an ErrInvalid", what, err)
			}
			return err != nil
		}
		var p podBody
		if json.Unmarshal(data, &p) == nil {
			if made, err := p.pod("p1", pod.Template{}); !refused("pod", err) && (made.Driver != pod.Docker && made.Driver != pod.Process || made.Check() != nil) {
				t.Errorf("got %+v, %v", made, made.Check())
			}
		}
		var tpl templateBody
		if json.Unmarshal(data, &tpl) == nil {
			_, err := tpl.applyTo(pod.Template{})
			refused("template", err)
		}
		var v volumeBody
		if json.Unmarshal(data, &v) == nil {
			made, err := v.applyTo(root, pod.Volume{})
			if !refused("volume", err) && made.Path != "" && (path.Dir(made.Path) != root || strings.Contains(made.Path, "..") && path.Clean(made.Path) != made.Path) {
				t.Errorf("got the path %q, want one below %s", made.Path, root)
			}
		}
	})
}

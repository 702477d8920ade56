package files

import (
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
)

// operating is the folder of what the profile observe mounts.
const operating = top + "docs/operating/"

// Grafana's files fit each other, as far as that is seen without Grafana: the
// panels and variables use a data source that is provisioned, of the name and the
// port that compose.yaml gives Prometheus, and each file is mounted where another
// looks for it. That the expressions are ones is for e2e/alerts.
func TestComposeProvisionsGrafana(t *testing.T) {
	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, URL string
			IsDefault            bool `yaml:"isDefault"`
		}
	}
	var providers struct {
		Providers []struct{ Options struct{ Path string } }
	}
	for name, into := range map[string]any{
		operating + "grafana/datasource.yaml": &sources, operating + "grafana/dashboards.yaml": &providers,
	} {
		if err := yaml.Unmarshal([]byte(read(t, name)), into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if len(sources.Datasources) != 1 || sources.Datasources[0].Type != "prometheus" || sources.Datasources[0].URL != "http://prometheus:9090" || !sources.Datasources[0].IsDefault {
		t.Errorf("got %+v, want compose.yaml's Prometheus as the default", sources)
	}
	d, err := ReadDashboard(operating)
	if err != nil {
		t.Fatal(err)
	}
	variable := d.Templating.List[0]
	if variable.Name != "datasource" || variable.Type != "datasource" || variable.Query != sources.Datasources[0].Type {
		t.Errorf("got the variable %+v, want one that takes the provisioned data source", variable)
	}
	for _, p := range d.Panels {
		if p.Datasource.UID != "${datasource}" && p.Datasource.UID != sources.Datasources[0].UID || len(p.Targets) == 0 {
			t.Errorf("%s: got %+v", p.Title, p)
		}
	}
	mounts := map[string]string{}
	for _, v := range load(t, single).Services["grafana"].Volumes {
		mounts[filepath.Clean(v.Source)] = v.Target
	}
	for file, folder := range map[string]string{
		"grafana/datasource.yaml": "/etc/grafana/provisioning/datasources", "grafana/dashboards.yaml": "/etc/grafana/provisioning/dashboards",
		"dashboard.json": providers.Providers[0].Options.Path,
	} {
		path, err := filepath.Abs(operating + file)
		if err != nil {
			t.Fatal(err)
		}
		if got := mounts[path]; filepath.Dir(got) != folder {
			t.Errorf("got %s mounted at %q, want it in %s", path, got, folder)
		}
	}
}

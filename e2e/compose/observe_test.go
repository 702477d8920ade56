package compose

import (
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// operating is the folder of what the profile observe mounts.
const operating = "../../docs/operating/"

// dashboard is what the tests read of dashboard.json.
type dashboard struct {
	Panels []struct {
		Title      string `json:"title"`
		Datasource struct {
			UID string `json:"uid"`
		} `json:"datasource"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query string `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	data, err := os.ReadFile(operating + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// queries asks Prometheus each expression of the dashboard; those of jobs, which
// ran before, have an answer with something in it.
func (s *stack) queries() {
	t := s.t
	t.Helper()
	asked := 0
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			asked++
			expr := strings.ReplaceAll(target.Expr, "$endpoint", ".*")
			var answer struct {
				Status string
				Data   struct{ Result []any }
			}
			ask := func() bool {
				err := s.get(s.at("PROMETHEUS_PORT")+"/api/v1/query?query="+url.QueryEscape(expr), &answer)
				return err == nil && answer.Status == "success"
			}
			if !ask() {
				t.Errorf("%s: got %+v for %s", p.Title, answer, expr)
			}
			if p.Title == "Jobs waiting" || p.Title == "Workers" && strings.Contains(expr, "flightline_workers{") {
				s.eventually(p.Title+" has series", func() bool { return ask() && len(answer.Data.Result) > 0 })
			}
		}
	}
	t.Logf("%d expressions answered", asked)
}

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
	var files struct {
		Services map[string]struct {
			Image, User string
			Volumes     []string
			Environment any
			Ports       []string
		}
	}
	for name, into := range map[string]any{
		operating + "grafana/datasource.yaml": &sources, operating + "grafana/dashboards.yaml": &providers, "../../compose.yaml": &files,
	} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(data, into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if len(sources.Datasources) != 1 || sources.Datasources[0].Type != "prometheus" || sources.Datasources[0].URL != "http://prometheus:9090" || !sources.Datasources[0].IsDefault {
		t.Errorf("got %+v, want compose.yaml's Prometheus as the default", sources)
	}
	d := readDashboard(t)
	variable := d.Templating.List[0]
	if variable.Name != "datasource" || variable.Type != "datasource" || variable.Query != sources.Datasources[0].Type {
		t.Errorf("got the variable %+v, want one that takes the provisioned data source", variable)
	}
	for _, p := range d.Panels {
		if p.Datasource.UID != "${datasource}" && p.Datasource.UID != sources.Datasources[0].UID || len(p.Targets) == 0 {
			t.Errorf("%s: got %+v", p.Title, p)
		}
	}
	mounts := strings.Join(files.Services["grafana"].Volumes, " ")
	for _, want := range []string{
		"./docs/operating/grafana/datasource.yaml:/etc/grafana/provisioning/datasources/", "./docs/operating/grafana/dashboards.yaml:/etc/grafana/provisioning/dashboards/",
		"./docs/operating/dashboard.json:" + providers.Providers[0].Options.Path + "/",
	} {
		if !strings.Contains(mounts, want) {
			t.Errorf("got %s, want %s", mounts, want)
		}
	}
	for name, service := range files.Services {
		for _, port := range service.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: got the port %s, want it on 127.0.0.1", name, port)
			}
		}
	}
}

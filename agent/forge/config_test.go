package forge_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/haagent/haagent/agent/forge"
)

const (
	oldConfig = `{"old":{0:1}}`
	newConfig = `{"new":{0:1,1:2}}`
)

// files returns the content of every file of DIR/config.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "config"))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, "config", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(b)
	}
	return all
}

// What a reader finds at each step of each sequence, written out.
func TestFault48_EveryStepOfEverySequence(t *testing.T) {
	half := newConfig[:len(newConfig)/2]
	oldHalf := oldConfig[:len(oldConfig)/2]
	for style, want := range map[forge.Style][][2]string{
		forge.Style4x: {
			{"c.json.tmp empty", "c.json=" + oldConfig + " c.json.tmp="},
			{"c.json.tmp half", "c.json=" + oldConfig + " c.json.tmp=" + half},
			{"c.json.tmp whole", "c.json=" + oldConfig + " c.json.tmp=" + newConfig},
			{"c.json.bak empty", "c.json=" + oldConfig + " c.json.bak= c.json.tmp=" + newConfig},
			{"c.json.bak half", "c.json=" + oldConfig + " c.json.bak=" + oldHalf + " c.json.tmp=" + newConfig},
			{"c.json.bak whole", "c.json=" + oldConfig + " c.json.bak=" + oldConfig + " c.json.tmp=" + newConfig},
			{"c.json deleted", "c.json.bak=" + oldConfig + " c.json.tmp=" + newConfig},
			{"c.json renamed", "c.json=" + newConfig + " c.json.bak=" + oldConfig},
		},
		forge.Style5x: {
			{"c.json.bak empty", "c.json=" + oldConfig + " c.json.bak="},
			{"c.json.bak half", "c.json=" + oldConfig + " c.json.bak=" + oldHalf},
			{"c.json.bak whole", "c.json=" + oldConfig + " c.json.bak=" + oldConfig},
			{"c.json empty", "c.json= c.json.bak=" + oldConfig},
			{"c.json half", "c.json=" + half + " c.json.bak=" + oldConfig},
			{"c.json whole", "c.json=" + newConfig + " c.json.bak=" + oldConfig},
		},
		forge.StyleNewer: {
			{"c.json renamed", "c.json.bak=" + oldConfig},
			{"c.json empty", "c.json= c.json.bak=" + oldConfig},
			{"c.json half", "c.json=" + half + " c.json.bak=" + oldConfig},
			{"c.json whole", "c.json=" + newConfig + " c.json.bak=" + oldConfig},
		},
	} {
		dir := t.TempDir()
		// The first version has nothing to back up.
		if err := forge.WriteConfig(dir, "c.json", []byte(oldConfig), style, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"c.json": oldConfig}, files(t, dir)); diff != "" {
			t.Errorf("style %d, first: %s", style, diff)
		}
		var got [][2]string
		err := forge.WriteConfig(dir, "c.json", []byte(newConfig), style, func(change string) error {
			var state []string
			all := files(t, dir)
			for _, name := range []string{"c.json", "c.json.bak", "c.json.tmp"} {
				if content, ok := all[name]; ok {
					state = append(state, name+"="+content)
				}
			}
			got = append(got, [2]string{change, strings.Join(state, " ")})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("style %d: %s", style, diff)
		}
		stopAtEveryStep(t, style, got)
	}
}

// stopAtEveryStep checks that an error of the hook leaves everything as it is.
func stopAtEveryStep(t *testing.T, style forge.Style, steps [][2]string) {
	t.Helper()
	died := errors.New("the broker died")
	for _, step := range steps {
		dir := t.TempDir()
		if err := forge.WriteConfig(dir, "c.json", []byte(oldConfig), style, nil); err != nil {
			t.Fatal(err)
		}
		err := forge.WriteConfig(dir, "c.json", []byte(newConfig), style, func(change string) error {
			if change == step[0] {
				return died
			}
			return nil
		})
		if !errors.Is(err, died) {
			t.Errorf("style %d, %s: %v", style, step[0], err)
		}
		for name, content := range files(t, dir) {
			if !strings.Contains(" "+step[1]+" ", " "+name+"="+content+" ") {
				t.Errorf("style %d, died at %q: %s holds %q", style, step[0], name, content)
			}
		}
	}
}

func TestWriteConfig_Refuses(t *testing.T) {
	if err := forge.WriteConfig(t.TempDir(), "c.json", nil, forge.Style(9), nil); err == nil {
		t.Error("an unknown style was written")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, style := range []forge.Style{forge.Style4x, forge.Style5x, forge.StyleNewer} {
		if err := forge.WriteConfig(file, "c.json", nil, style, nil); err == nil {
			t.Errorf("style %d: written below a file", style)
		}
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "config", "c.json", "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := forge.WriteConfig(dir, "c.json", nil, style, nil); err == nil && style != forge.StyleNewer {
			t.Errorf("style %d: written over a directory", style)
		}
	}
}

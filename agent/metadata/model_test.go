package metadata

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/wire"
)

// Any order of snapshots, installs, failures, deaths and restarts keeps the
// promises: positions never ahead of the verified log, no way back, and the
// latest content once the log covers it and nothing fails.
func TestI5_AnyOrderOfEvents(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, c := t.TempDir(), newClock()
		var d *disk
		var i *Installer
		start := func() {
			d = &disk{root: dir}
			var err error
			if i, err = newInstaller(d, c.options()); err != nil {
				rt.Fatal(err)
			}
		}
		start()
		version, latest := 0, 0 // of the source, and what this process was offered last
		var end, verified wire.PhyOffset
		ends := map[int]wire.PhyOffset{} // where the log ended when a version was first read
		seenTopics, seenOffsets := 0, 0
		look := func() {
			topicsAt, offsetsAt := 0, 0
			if b := content(rt, dir, "topics.json"); b != "" {
				topicsAt = int(mustFile(rt, "topics.json", []byte(b)).DataVersion.Counter)
			}
			if b := content(rt, dir, "consumerOffset.json"); b != "" {
				mustFile(rt, "consumerOffset.json", []byte(b))
				at := strings.Count(b, "i")
				offsetsAt = at
			}
			if topicsAt < seenTopics || offsetsAt < seenOffsets {
				rt.Fatalf("topics went from version %d to %d, positions from %d to %d", seenTopics, topicsAt, seenOffsets, offsetsAt)
			}
			if offsetsAt > 0 && ends[offsetsAt] > verified {
				rt.Fatalf("positions of version %d need the log up to %v, verified is %v", offsetsAt, ends[offsetsAt], verified)
			}
			seenTopics, seenOffsets = topicsAt, offsetsAt
		}
		rt.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				if version == 0 || rapid.Bool().Draw(t, "changed") {
					version++
					end += wire.PhyOffset(rapid.IntRange(0, 3).Draw(t, "grown"))
					ends[version] = end
				} else {
					end += wire.PhyOffset(rapid.IntRange(0, 3).Draw(t, "grown"))
				}
				latest = version
				unary := []byte(`{"offsetTable":{"` + strings.Repeat("i", version) + `@g":{0:1}}}`)
				offered(rt, i, c.snapshot(end, mustFile(rt, "topics.json", topics(version, 2)), mustFile(rt, "consumerOffset.json", unary)))
			},
			"replicate": func(t *rapid.T) { verified = min(end, verified+wire.PhyOffset(rapid.IntRange(1, 5).Draw(t, "bytes"))) },
			"install": func(*rapid.T) {
				if _, err := i.Install(verified); err != nil {
					rt.Fatal(err)
				}
			},
			"fail": func(t *rapid.T) {
				k := rapid.IntRange(1, 40).Draw(t, "step")
				dead := rapid.Bool().Draw(t, "dead")
				n := 0
				d.before = func(string, string) error {
					if n++; n == k || dead && n > k {
						return errInjected
					}
					return nil
				}
				_, err := i.Install(verified)
				d.before = nil
				if err == nil && n >= k {
					rt.Fatalf("step %d failed without an error", k)
				}
				if dead {
					start()
					latest = 0
				}
			},
			"restart": func(*rapid.T) { start(); latest = 0 },
			"":        func(*rapid.T) { look() },
		})
		verified = end
		if _, err := i.Install(verified); err != nil {
			rt.Fatal(err)
		}
		look()
		if latest > 0 && (seenTopics != latest || seenOffsets != latest) {
			rt.Fatalf("version %d was offered and is covered, topics are %d, positions %d", latest, seenTopics, seenOffsets)
		}
		if foreign, err := i.Check(); err != nil || foreign != nil {
			rt.Fatalf("Check: %q, %v", foreign, err)
		}
	})
}

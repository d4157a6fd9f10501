package options

import (
	"crypto/sha256"
)

// maxDigest is how much of a file is looked at for changes; none that can be used
// is longer.
const maxDigest = 1 << 20

// digest notes what is in the files that are named, so that a change of one shows
// where its name stays the same. What cannot be read is no concern here.
func (r *resolver) digest() {
	for name, v := range r.set.values {
		if v.Option.Kind != File || v.Option.NoKey || name == "broker-conf" || v.Text == "" {
			continue // the first two are compared by what they say
		}
		text, err := readSmall(v.Text, maxDigest)
		if err != nil {
			continue
		}
		sum := sha256.Sum256(text)
		v.content = string(sum[:])
		r.set.values[name] = v
	}
}

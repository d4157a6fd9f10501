package discovery

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// SetSeeds joins other agents than Options.Join says, at once and from then on.
// What cannot be joined is an *OptionError.
func (g *Gossip) SetSeeds(seeds []string) error {
	opt := g.opt
	opt.Join = slices.Clone(seeds)
	if err := opt.checkSeeds(); err != nil {
		return err
	}
	g.seeds.Store(&opt.Join)
	select {
	case g.seedsChange <- struct{}{}:
	default:
	}
	return nil
}

// SetKeys takes other keys than Options.Keys says: the first encrypts from now on,
// all are accepted. An agent that had keys keeps some, and one that had none gets
// none: that changes with a restart only.
func (g *Gossip) SetKeys(keys [][]byte) error {
	switch {
	case g.keys == nil && len(keys) == 0:
		return nil
	case g.keys == nil || len(keys) == 0:
		return errors.New("gossip: whether there are keys changes with a restart only")
	}
	for _, key := range keys {
		if err := g.keys.AddKey(key); err != nil {
			return fmt.Errorf("gossip: take a key: %w", err)
		}
	}
	if err := g.keys.UseKey(keys[0]); err != nil {
		return fmt.Errorf("gossip: use the first key: %w", err)
	}
	for _, old := range g.keys.GetKeys() {
		if slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, old) }) {
			continue
		}
		if err := g.keys.RemoveKey(old); err != nil {
			return fmt.Errorf("gossip: forget a key: %w", err)
		}
	}
	return nil
}

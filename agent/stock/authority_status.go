package stock

import "github.com/haagent/haagent/agent/state"

// found notes a broker that was proven to be ours.
func (a *Authority) found(s Survey) {
	a.change(func(st *AuthorityStatus) {
		st.describe(s)
		a.config = &s.Config
		st.Mode, st.Problem, st.Err = AuthorityAsked, nil, nil
	})
}

// refused notes what a broker that may not be ours says of itself, if anything.
func (a *Authority) refused(s Survey) {
	if s.Config.Role == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.describe(s)
	a.config = &s.Config
}

// describe takes over what the broker says of itself.
func (st *AuthorityStatus) describe(s Survey) {
	st.HAAddr, st.Role = s.HAAddr, s.Config.Role
	st.Cluster, st.BrokerName, st.BrokerID = s.Config.ClusterName, s.Config.BrokerName, s.Config.BrokerID
	st.SegmentSize = s.Config.SegmentSize
	st.InSyncReplicas = s.Config.InSyncReplicas
}

// version notes the broker's release in its own words.
func (a *Authority) version(v string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Version = v
}

// fail notes why the end is not known.
func (a *Authority) fail(err error) {
	a.change(func(st *AuthorityStatus) {
		st.Mode, st.Problem, st.Err = AuthorityNone, state.AsProblem(err), err
	})
}

// streaming notes that the HA connection stands, or why it does not; that is no
// reason not to know the end.
func (a *Authority) streaming(err error) {
	a.change(func(st *AuthorityStatus) {
		switch {
		case st.Mode == AuthorityNone:
		case err == nil:
			st.Mode, st.Problem = AuthorityHA, nil
		default:
			st.Mode, st.Problem = AuthorityAsked, state.AsProblem(err)
		}
	})
}

// change changes the status, and logs what a reader of the log should see.
func (a *Authority) change(f func(*AuthorityStatus)) {
	a.mu.Lock()
	old := a.status
	f(&a.status)
	now := a.status
	a.mu.Unlock()
	code := func(p *state.Problem) string {
		if p == nil {
			return ""
		}
		return p.Code
	}
	log := a.opt.Log.With("broker", now.Addr)
	switch {
	case now.Problem != nil && code(now.Problem) != code(old.Problem):
		log.Warn("the local broker's own end cannot be used", "reason", now.Problem, "try", now.Problem.Try)
	case now.Mode == old.Mode && now.Role == old.Role:
	case now.Mode == AuthorityNone:
		log.Warn("the local broker does not tell its end", "reason", now.Err)
	default:
		log.Info("the local broker tells its end", "how", now.Mode, "role", now.Role, "version", now.Version)
	}
}

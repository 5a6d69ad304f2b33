// What is said over a connection: see wire.hpp.
#include <cstring>

#include "base/job/open/connection.hpp"
#include "base/report/report.hpp"

namespace pt2p::open_job {

uint32_t ConnectionManager::limit_of(const Connection &c, Frame kind) const
{
	switch (kind) {
	case Frame::hello: return c.state == Connection::State::awaits_hello ? sizeof(Hello) : 0;
	case Frame::introduction: return c.state == Connection::State::awaits_introduction ? max_frame : 0;
	case Frame::refusal: return sizeof(Reason);
	case Frame::ready:
	case Frame::goodbye: break;
	}
	return 0;
}

void ConnectionManager::on_frame(Connection &c, Frame kind, std::string &bytes)
{
	using State = Connection::State;
	if (kind == Frame::goodbye && c.introduced()) {
		peers_.leave(c.slot, "it has left: pt2p_finalize or pt2p_peer_remove");
		const bool both = c.state == State::said_goodbye;
		c.state = State::said_goodbye;
		if (both || peers_.is_handled(c.slot))
			close(c, "it has left");
		return;
	}
	if (kind == Frame::refusal && !c.introduced())
		return on_refusal(c, bytes);
	if (kind == Frame::hello && c.state == State::awaits_hello)
		return on_hello(c, bytes);
	if (kind == Frame::introduction && c.state == State::awaits_introduction)
		return on_introduction(c, bytes);
	if (kind == Frame::ready && c.state == State::awaits_ready) {
		c.state = State::established;
		return peers_.become_live(c.slot);
	}
	close(c, "what answers there is no context of libpt2p");
}

void ConnectionManager::on_hello(Connection &c, const std::string &bytes)
{
	if (bytes.size() != sizeof c.theirs)
		return close(c, "what answers there is no context of libpt2p");
	std::memcpy(&c.theirs, bytes.data(), sizeof c.theirs);
	if (c.theirs.magic != Hello::expected_magic)
		return close(c, "what answers there is no context of libpt2p");
	if (c.theirs.version != Hello::expected_version)
		return refuse(c, Reason::version);
	if (c.dialed)
		return on_hello_of_dialed(c);
	c.mine.proves = c.way == Way::tcp;
	if (c.way == Way::tcp) {
		c.keys = Keys(secret_, c.theirs, c.mine);
		c.mine.proof = c.keys.proof_of_dialed();
	}
	send(c, Frame::hello, std::string(reinterpret_cast<const char *>(&c.mine), sizeof c.mine));
	c.state = Connection::State::awaits_introduction;
}

void ConnectionManager::on_hello_of_dialed(Connection &c)
{
	if (c.theirs.id == id_) {
		settle(c, 0); // its own address
		return close(c, "");
	}
	if (c.way == Way::tcp) {
		c.keys = Keys(secret_, c.mine, c.theirs);
		if (c.theirs.proof != c.keys.proof_of_dialed())
			return refuse(c, Reason::secret);
	}
	if (const int known = peers_.find_live(c.theirs.id); known > 0) {
		settle(c, known);
		return close(c, "");
	}
	c.slot = peers_.begin(c.theirs.id);
	if (c.slot.rank < 0) {
		settle(c, PT2P_ERR_NO_NUMBER,
		       c.dial->address + ": all numbers of this context belong to peers (PT2P_OPEN_PEERS)");
		return close(c, "");
	}
	introduce(c);
	c.state = Connection::State::awaits_introduction;
}

void ConnectionManager::introduce(Connection &c)
{
	Introduction introduction;
	introduction.number = c.slot.rank;
	introduction.address_bytes = static_cast<uint32_t>(address_.size());
	std::string bytes(reinterpret_cast<const char *>(&introduction), sizeof introduction);
	bytes += address_;
	bytes += blob_;
	if (c.way == Way::tcp)
		c.keys.seal(c.dialed, bytes);
	send(c, Frame::introduction, bytes);
}

void ConnectionManager::on_introduction(Connection &c, std::string &bytes)
{
	if (c.way == Way::tcp && !c.keys.unseal(!c.dialed, bytes))
		return refuse(c, Reason::secret);
	Introduction introduction;
	if (bytes.size() < sizeof introduction)
		return close(c, "it introduces itself wrongly");
	std::memcpy(&introduction, bytes.data(), sizeof introduction);
	bytes.erase(0, sizeof introduction);
	if (introduction.number < 1 || introduction.address_bytes > bytes.size())
		return close(c, "it introduces itself wrongly");
	if (!c.dialed) {
		c.slot = peers_.begin(c.theirs.id, introduction.number);
		if (c.slot.rank < 0)
			return refuse(c, Reason::no_number);
	}
	peers_.learn(c.slot, introduction.number, bytes.substr(introduction.address_bytes),
	             bytes.substr(0, introduction.address_bytes));
	if (!c.dialed) {
		c.state = Connection::State::awaits_ready;
		return introduce(c);
	}
	// The peer may send as soon as it has this, and knows the number that it sends to.
	send(c, Frame::ready, "");
	c.state = Connection::State::established;
	peers_.become_live(c.slot);
	settle(c, c.slot.rank);
}

void ConnectionManager::on_refusal(Connection &c, const std::string &bytes)
{
	Reason reason{};
	if (bytes.size() == sizeof reason)
		std::memcpy(&reason, bytes.data(), sizeof reason);
	if (c.dial)
		c.dial->refused = true;
	close(c, std::string("it refuses: ") + text_of(reason));
}

void ConnectionManager::refuse(Connection &c, Reason reason)
{
	if (reason == Reason::no_number) {
		reporter_.log(LogLevel::warning, "a peer is refused: all numbers belong to peers; raise PT2P_OPEN_PEERS");
	} else {
		note_refused(c.dialed ? "a process that was to be added" : "a process that dialed over TCP", 0,
		             text_of(reason));
	}
	if (c.dial)
		c.dial->refused = true;
	send(c, Frame::refusal, std::string(reinterpret_cast<const char *>(&reason), sizeof reason));
	close(c, text_of(reason));
}

void ConnectionManager::settle(Connection &c, int rank)
{
	if (c.dial)
		finish(*c.dial, rank);
	c.dial.reset();
}

void ConnectionManager::settle(Connection &c, pt2p_status_t status, const std::string &why)
{
	if (c.dial)
		finish(*c.dial, status, why);
	c.dial.reset();
}

} // namespace pt2p::open_job

// A table of CSV as a picture: draw FILE.csv x=COLUMN y=COLUMN[,COLUMN...] [by=COLUMN] [marks=COLUMN[,...]] [title=TEXT]
// [xlabel=TEXT] [ylabel=TEXT] [log=x|y|xy] >FILE.svg
// Each column of y is a line; with by=, one for each value of that column. Columns of marks are points: what was measured,
// beside lines of what the model says.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr double left = 80, top = 50, width = 640, height = 380;
constexpr const char *colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"};

[[noreturn]] void fail(const std::string &why)
{
	std::fprintf(stderr, "draw: %s\n", why.c_str());
	std::exit(2);
}

// Commas inside of quotes belong to a field.
std::vector<std::string> split(const std::string &line)
{
	std::vector<std::string> fields(1);
	bool quoted = false;
	for (char c : line)
		if (c == '"')
			quoted = !quoted;
		else if (c == ',' && !quoted)
			fields.emplace_back();
		else
			fields.back() += c;
	return fields;
}

struct Table {
	std::vector<std::string> names;
	std::vector<std::vector<std::string>> rows;

	explicit Table(const std::string &path)
	{
		std::ifstream file(path);
		std::string line;
		if (!std::getline(file, line))
			fail(path + " cannot be read, or is empty");
		names = split(line);
		while (std::getline(file, line))
			if (!line.empty())
				rows.push_back(split(line));
	}
	size_t column(const std::string &name) const
	{
		const auto found = std::find(names.begin(), names.end(), name);
		if (found == names.end())
			fail("there is no column " + name);
		return static_cast<size_t>(found - names.begin());
	}
	// NaN for what is no number.
	double number(size_t row, size_t column) const
	{
		const std::string text = column < rows[row].size() ? rows[row][column] : "";
		char *end;
		const double value = std::strtod(text.c_str(), &end);
		return end == text.c_str() || *end ? NAN : value;
	}
};

struct Series {
	std::vector<std::pair<double, double>> points;
	bool marks = false;
};

struct Axis {
	bool log = false;
	double low = HUGE_VAL, high = -HUGE_VAL;
	void see(double v)
	{
		low = std::min(low, v);
		high = std::max(high, v);
	}
	std::vector<double> ticks; // they begin and end the axis
	void round()
	{
		if (log) {
			if (low <= 0)
				fail("a logarithmic axis needs numbers above zero");
			const double first = std::pow(2, std::floor(std::log2(low))), factor = high / first > 4096 ? 10 : 2;
			for (double t = first;; t *= factor) {
				ticks.push_back(t);
				if (t >= high)
					break;
			}
		} else {
			low = std::min(low, 0.0);
			const double rough = std::max(high - low, 1e-9) / 5, power = std::pow(10, std::floor(std::log10(rough)));
			const double step = power * (rough / power > 5 ? 10 : rough / power > 2 ? 5 : rough / power > 1 ? 2 : 1);
			for (double t = std::floor(low / step) * step;; t += step) {
				ticks.push_back(t);
				if (t >= high)
					break;
			}
		}
		low = ticks.front();
		high = ticks.back();
	}
	double place(double v) const
	{
		return high == low ? 0.5 : log ? std::log(v / low) / std::log(high / low) : (v - low) / (high - low);
	}
};

std::string text(double x, double y, const char *anchor, const std::string &words, const char *more = "")
{
	std::string escaped;
	for (char c : words)
		escaped += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
	std::ostringstream out;
	out << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << "\"" << more << ">" << escaped
	    << "</text>\n";
	return out.str();
}

std::string short_number(double value)
{
	char all[32];
	std::snprintf(all, sizeof all, "%.4g", value);
	return all;
}

} // namespace

int main(int argc, char **argv)
{
	std::map<std::string, std::string> o = {{"x", ""},     {"y", ""},      {"by", ""},     {"marks", ""},
	                                        {"title", ""}, {"xlabel", ""}, {"ylabel", ""}, {"log", ""}};
	for (int i = 2; i < argc; ++i) {
		const std::string argument = argv[i];
		const size_t equals = argument.find('=');
		if (equals == std::string::npos || !o.count(argument.substr(0, equals)))
			fail("unknown option " + argument);
		o[argument.substr(0, equals)] = argument.substr(equals + 1);
	}
	if (argc < 2 || o["x"].empty() || (o["y"].empty() && o["marks"].empty()))
		fail(
		    "draw FILE.csv x=COLUMN y=COLUMN[,...] [by=COLUMN] [marks=COLUMN[,...]] [title=] [xlabel=] [ylabel=] [log=x|y|xy]");
	const Table table(argv[1]);
	const size_t at_x = table.column(o["x"]);

	std::vector<std::string> order;
	std::map<std::string, Series> all;
	for (const bool marks : {false, true})
		for (const std::string &name : split(o[marks ? "marks" : "y"])) {
			if (name.empty())
				continue;
			const size_t at_y = table.column(name);
			for (size_t row = 0; row < table.rows.size(); ++row) {
				std::string key = name;
				if (!o["by"].empty())
					key = o["by"] + " " + table.rows[row][table.column(o["by"])] +
					      (split(o["y"] + "," + o["marks"]).size() > 2 || marks ? ", " + name : "");
				const double x = table.number(row, at_x), y = table.number(row, at_y);
				if (std::isnan(x) || std::isnan(y))
					continue;
				if (!all.count(key))
					order.push_back(key);
				all[key].marks = marks;
				all[key].points.emplace_back(x, y);
			}
		}
	Axis x, y;
	x.log = o["log"].find('x') != std::string::npos;
	y.log = o["log"].find('y') != std::string::npos;
	for (auto &[name, series] : all) {
		std::sort(series.points.begin(), series.points.end());
		for (const auto &[px, py] : series.points) {
			x.see(px);
			y.see(py);
		}
	}
	if (all.empty())
		fail("there is nothing to draw");
	x.round();
	y.round();
	const auto to_x = [&](double v) { return left + width * x.place(v); };
	const auto to_y = [&](double v) { return top + height * (1 - y.place(v)); };

	const double bottom = top + height, page = bottom + 60 + 18 * static_cast<double>(order.size());
	std::ostringstream svg;
	svg << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << left + width + 30 << "\" height=\"" << page
	    << "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
	    << text(left, 25, "start", o["title"], " font-size=\"15\"")
	    << text(left + width / 2, bottom + 38, "middle", o["xlabel"].empty() ? o["x"] : o["xlabel"])
	    << text(0, 0, "middle", o["ylabel"].empty() ? o["y"] : o["ylabel"],
	            (" transform=\"translate(20," + short_number(top + height / 2) + ") rotate(-90)\"").c_str());
	for (double t : x.ticks)
		svg << "<line x1=\"" << to_x(t) << "\" x2=\"" << to_x(t) << "\" y1=\"" << top << "\" y2=\"" << bottom
		    << "\" stroke=\"#dddddd\"/>\n"
		    << text(to_x(t), bottom + 18, "middle", short_number(t));
	for (double t : y.ticks)
		svg << "<line x1=\"" << left << "\" x2=\"" << left + width << "\" y1=\"" << to_y(t) << "\" y2=\"" << to_y(t)
		    << "\" stroke=\"#dddddd\"/>\n"
		    << text(left - 8, to_y(t) + 4, "end", short_number(t));
	for (size_t n = 0; n < order.size(); ++n) {
		const Series &series = all[order[n]];
		const char *colour = colours[n % std::size(colours)];
		const double ly = bottom + 60 + 18 * static_cast<double>(n);
		std::string path;
		for (const auto &[px, py] : series.points) {
			path += (path.empty() ? "M" : "L") + short_number(to_x(px)) + " " + short_number(to_y(py));
			svg << "<circle cx=\"" << to_x(px) << "\" cy=\"" << to_y(py) << "\" r=\"" << (series.marks ? 5 : 2)
			    << "\" stroke=\"" << colour << "\" fill=\"" << (series.marks ? "none" : colour) << "\" stroke-width=\"2\"/>\n";
		}
		if (!series.marks)
			svg << "<path d=\"" << path << "\" fill=\"none\" stroke=\"" << colour << "\" stroke-width=\"2\"/>\n";
		if (series.marks)
			svg << "<circle cx=\"" << left + 10 << "\" cy=\"" << ly - 4 << "\" r=\"5\" stroke=\"" << colour
			    << "\" fill=\"none\" stroke-width=\"2\"/>\n";
		else
			svg << "<line x1=\"" << left << "\" x2=\"" << left + 20 << "\" y1=\"" << ly - 4 << "\" y2=\"" << ly - 4
			    << "\" stroke=\"" << colour << "\" stroke-width=\"2\"/>\n";
		svg << text(left + 28, ly, "start", order[n]);
	}
	svg << "</svg>\n";
	std::fputs(svg.str().c_str(), stdout);
	return 0;
}

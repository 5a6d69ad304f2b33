// A table of CSV as a picture: draw FILE.csv x=COLUMN[,COLUMN] y=COLUMN[,COLUMN...] [by=COLUMN[,COLUMN]]
// [marks=COLUMN[,...]] [bars=yes] [title=TEXT] [xlabel=TEXT] [ylabel=TEXT] [log=x|y|xy] >FILE.svg Draws each column of
// y as a line. With by=, one line for each value of that column; with two columns, the first has the colour and the
// second the dashes. Columns of marks are points, beside the lines: what was measured, or what a law has chosen. bars:
// x names categories, of one column or two, each with a bar for each value of by.
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
	std::string text(size_t row, size_t column) const { return column < rows[row].size() ? rows[row][column] : ""; }
	// NaN for what is no number.
	double number(size_t row, size_t column) const
	{
		const std::string field = text(row, column);
		char *end;
		const double value = std::strtod(field.c_str(), &end);
		return end == field.c_str() || *end ? NAN : value;
	}
};

struct Series {
	std::string name;
	size_t colour, style; // one for each line, or by the values of by
	bool marks;
	std::vector<std::pair<double, double>> points;
};

using Options = std::map<std::string, std::string>;

// A number needs the name of its column, a word speaks for itself.
std::string described(const std::string &column, const std::string &value)
{
	char *end;
	std::strtod(value.c_str(), &end);
	return *end || value.empty() ? value : column + " " + value;
}

size_t place_of(std::vector<std::string> &all, const std::string &value)
{
	const auto found = std::find(all.begin(), all.end(), value);
	if (found != all.end())
		return static_cast<size_t>(found - all.begin());
	all.push_back(value);
	return all.size() - 1;
}

std::vector<std::string> columns(const std::string &text)
{
	return text.empty() ? std::vector<std::string>() : split(text);
}

// What a row has in those columns.
std::string joined(const Table &table, size_t row, const std::vector<std::string> &names, bool with_names)
{
	std::string all;
	for (const std::string &name : names) {
		const std::string value = table.text(row, table.column(name));
		all += (all.empty() ? "" : ", ") + (with_names ? described(name, value) : value);
	}
	return all;
}

// With bars, the place of a category is its x.
std::vector<Series> gather(const Table &table, const Options &o, std::vector<std::string> &categories)
{
	const std::vector<std::string> by = columns(o.at("by")), at_x = columns(o.at("x"));
	std::vector<Series> all;
	std::vector<std::string> first, second;
	for (const bool marks : {false, true}) {
		const std::vector<std::string> names = columns(o.at(marks ? "marks" : "y"));
		for (const std::string &name : names)
			for (size_t row = 0; row < table.rows.size(); ++row) {
				const double y = table.number(row, table.column(name));
				if (std::isnan(y))
					continue;
				const double x = o.at("bars").empty()
				                     ? table.number(row, table.column(at_x.front()))
				                     : static_cast<double>(place_of(categories, joined(table, row, at_x, false)));
				if (std::isnan(x))
					continue;
				std::string key = joined(table, row, by, true);
				if (by.empty() || names.size() > 1)
					key += (key.empty() ? "" : ", ") + name;
				auto series = std::find_if(all.begin(), all.end(),
				                           [&](const Series &one) { return one.name == key && one.marks == marks; });
				if (series == all.end()) {
					size_t colour = all.size() % std::size(colours), style = all.size() / std::size(colours);
					if (by.size() == 2) {
						colour = place_of(first, table.text(row, table.column(by[0])));
						style = place_of(second, table.text(row, table.column(by[1])));
					}
					series = all.insert(all.end(), {key, colour, style, marks, {}});
				}
				series->points.emplace_back(x, y);
			}
	}
	if (all.empty())
		fail("there is nothing to draw");
	if (o.at("bars").empty())
		for (Series &series : all)
			std::sort(series.points.begin(), series.points.end());
	return all;
}

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

std::string line(double x1, double y1, double x2, double y2, const char *colour, const char *more = "")
{
	std::ostringstream out;
	out << "<line x1=\"" << x1 << "\" x2=\"" << x2 << "\" y1=\"" << y1 << "\" y2=\"" << y2 << "\" stroke=\"" << colour
	    << "\"" << more << "/>\n";
	return out.str();
}

std::string box(double x, double y, double wide, double high, const char *fill, const std::string &more = "")
{
	std::ostringstream out;
	out << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << wide << "\" height=\"" << high << "\" fill=\""
	    << fill << "\"" << more << "/>\n";
	return out.str();
}

std::string dashes(size_t style)
{
	constexpr const char *patterns[] = {"", "7 4", "2 3", "9 3 2 3"};
	return " stroke-width=\"2\" stroke-dasharray=\"" + std::string(patterns[style % std::size(patterns)]) + "\"";
}

// A circle or a square, by the style.
std::string mark(double x, double y, size_t style, const char *colour)
{
	if (style % 2)
		return box(x - 5, y - 5, 10, 10, "none", std::string(" stroke=\"") + colour + "\" stroke-width=\"2\"");
	std::ostringstream out;
	out << "<circle cx=\"" << x << "\" cy=\"" << y << "\" r=\"5\" stroke=\"" << colour
	    << "\" fill=\"none\" stroke-width=\"2\"/>\n";
	return out.str();
}

const char *colour_of(const Series &series) { return colours[series.colour % std::size(colours)]; }

constexpr double bottom = top + height;

std::string bars(const std::vector<Series> &all, const std::vector<std::string> &categories, const Axis &y)
{
	std::string svg;
	const double group = width / static_cast<double>(categories.size()),
	             wide = 0.8 * group / static_cast<double>(all.size());
	constexpr double room_for_a_number = 24;
	for (size_t c = 0; c < categories.size(); ++c)
		svg += text(left + (static_cast<double>(c) + 0.5) * group, bottom + 18, "middle", categories[c]);
	for (size_t n = 0; n < all.size(); ++n)
		for (const auto &[px, py] : all[n].points) {
			const double at = left + (px + 0.1) * group + static_cast<double>(n) * wide,
			             zero = top + height * (1 - y.place(0)), end = top + height * (1 - y.place(py));
			svg += box(at, std::min(zero, end), wide - 1, std::fabs(zero - end), colour_of(all[n]));
			if (wide >= room_for_a_number)
				svg += text(at + wide / 2, end + (py < 0 ? 12 : -4), "middle", short_number(py), " font-size=\"10\"");
		}
	return svg;
}

std::string lines(const std::vector<Series> &all, const Axis &x, const Axis &y)
{
	std::ostringstream svg;
	for (const double t : x.ticks)
		svg << line(left + width * x.place(t), top, left + width * x.place(t), bottom, "#dddddd")
		    << text(left + width * x.place(t), bottom + 18, "middle", short_number(t));
	for (const Series &series : all) {
		std::string path;
		for (const auto &[px, py] : series.points) {
			const double to_x = left + width * x.place(px), to_y = top + height * (1 - y.place(py));
			path += (path.empty() ? "M" : "L") + short_number(to_x) + " " + short_number(to_y);
			if (series.marks)
				svg << mark(to_x, to_y, series.style, colour_of(series));
			else
				svg << "<circle cx=\"" << to_x << "\" cy=\"" << to_y << "\" r=\"3\" fill=\"" << colour_of(series)
				    << "\"/>\n";
		}
		if (!series.marks)
			svg << "<path d=\"" << path << "\" fill=\"none\" stroke=\"" << colour_of(series) << "\""
			    << dashes(series.style) << "/>\n";
	}
	return svg.str();
}

// In two columns.
std::string legend(const std::vector<Series> &all, bool with_bars)
{
	std::string svg;
	const size_t half = (all.size() + 1) / 2;
	for (size_t n = 0; n < all.size(); ++n) {
		const double x = left + (n < half ? 0 : width / 2), y = bottom + 60 + 18 * static_cast<double>(n % half);
		if (with_bars)
			svg += box(x, y - 10, 20, 12, colour_of(all[n]));
		else if (all[n].marks)
			svg += mark(x + 10, y - 4, all[n].style, colour_of(all[n]));
		else
			svg += line(x, y - 4, x + 20, y - 4, colour_of(all[n]), dashes(all[n].style).c_str());
		svg += text(x + 28, y, "start", all[n].name);
	}
	return svg;
}

} // namespace

int main(int argc, char **argv)
{
	Options o = {{"x", ""},     {"y", ""},      {"by", ""},     {"marks", ""}, {"bars", ""},
	             {"title", ""}, {"xlabel", ""}, {"ylabel", ""}, {"log", ""}};
	for (int i = 2; i < argc; ++i) {
		const std::string argument = argv[i];
		const size_t equals = argument.find('=');
		if (equals == std::string::npos || !o.count(argument.substr(0, equals)))
			fail("unknown option " + argument);
		o[argument.substr(0, equals)] = argument.substr(equals + 1);
	}
	if (argc < 2 || o["x"].empty() || (o["y"].empty() && o["marks"].empty()))
		fail("draw FILE.csv x=COLUMN[,COLUMN] y=COLUMN[,...] [by=COLUMN[,COLUMN]] [marks=COLUMN[,...]] [bars=yes] "
		     "[title=] "
		     "[xlabel=] [ylabel=] [log=x|y|xy]");
	const bool with_bars = !o["bars"].empty();
	std::vector<std::string> categories;
	const std::vector<Series> all = gather(Table(argv[1]), o, categories);
	Axis x, y;
	x.log = o["log"].find('x') != std::string::npos;
	y.log = o["log"].find('y') != std::string::npos;
	if (with_bars && (x.log || y.log))
		fail("bars begin at zero: no logarithmic axis");
	for (const Series &series : all)
		for (const auto &[px, py] : series.points) {
			x.see(px);
			y.see(py);
		}
	x.round();
	y.round();

	const double page = bottom + 60 + 18 * std::ceil(static_cast<double>(all.size()) / 2);
	std::ostringstream svg;
	svg << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << left + width + 30 << "\" height=\"" << page
	    << "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
	    << text(left, 25, "start", o["title"], " font-size=\"15\"")
	    << text(left + width / 2, bottom + 38, "middle", o["xlabel"].empty() ? o["x"] : o["xlabel"])
	    << text(0, 0, "middle", o["ylabel"].empty() ? o["y"] : o["ylabel"],
	            (" transform=\"translate(20," + short_number(top + height / 2) + ") rotate(-90)\"").c_str());
	for (const double t : y.ticks)
		svg << line(left, top + height * (1 - y.place(t)), left + width, top + height * (1 - y.place(t)), "#dddddd")
		    << text(left - 8, top + height * (1 - y.place(t)) + 4, "end", short_number(t));
	svg << (with_bars ? bars(all, categories, y) : lines(all, x, y)) << legend(all, with_bars) << "</svg>\n";
	std::fputs(svg.str().c_str(), stdout);
	return 0;
}

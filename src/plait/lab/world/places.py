"""The gazetteer of the world: some dozens of towns, several of the same name.

Coordinates are WGS84 degrees, elevations metres. The facts are those of public gazetteers, rounded.
"""

from __future__ import annotations

from msgspec import Struct


class Town(Struct, frozen=True):
    """A town: its name, country and zones, coordinates, and what else a geocoding service says of it."""

    name: str
    latitude: float
    longitude: float
    country: str
    code: str
    zones: str
    timezone: str
    population: int
    elevation: float
    feature: str = "PPL"

    @property
    def label(self) -> str:
        """The name that no other town has: `London, Ontario, Canada`."""
        return ", ".join(dict.fromkeys((self.name, self.zones.rpartition(", ")[2], self.country)))

    @property
    def address(self) -> str:
        """The address as a location service writes it: `Ghent, Flanders, BE`."""
        return f"{self.name}, {self.zones.rpartition(', ')[2]}, {self.code}"

    def answer(self) -> dict[str, object]:
        """Returns what a geocoding service lists of it."""
        return {
            "name": self.name,
            "latitude": self.latitude,
            "longitude": self.longitude,
            "feature_code": self.feature,
            "timezone": self.timezone,
            "population": self.population,
            "country": f"{self.country} ({self.code})",
            "administrative_zones": self.zones,
        }


_TABLE = """
London|51.50853|-0.12574|United Kingdom|GB|Greater London, England|Europe/London|8961989|25|PPLC
London|42.98339|-81.23304|Canada|CA|Ontario|America/Toronto|422324|252|PPL
London|39.88645|-83.44825|United States|US|Madison, Ohio|America/New_York|10279|321|PPLA2
London|37.12898|-84.08326|United States|US|Laurel, Kentucky|America/New_York|7573|380|PPLA2
Paris|48.85341|2.3488|France|FR|Paris, Ile-de-France|Europe/Paris|2138551|42|PPLC
Paris|33.66094|-95.55551|United States|US|Lamar, Texas|America/Chicago|24839|183|PPLA2
Paris|36.302|-88.32671|United States|US|Henry, Tennessee|America/Chicago|10156|157|PPLA2
Cambridge|52.2|0.11667|United Kingdom|GB|Cambridgeshire, England|Europe/London|145674|12|PPLA2
Cambridge|42.3751|-71.10561|United States|US|Middlesex, Massachusetts|America/New_York|118403|12|PPLA2
Cambridge|43.3601|-80.31269|Canada|CA|Ontario|America/Toronto|138479|299|PPL
Birmingham|52.48142|-1.89983|United Kingdom|GB|West Midlands, England|Europe/London|1144919|149|PPLA2
Birmingham|33.52066|-86.80249|United States|US|Jefferson, Alabama|America/Chicago|200733|187|PPLA2
Springfield|39.80172|-89.64371|United States|US|Sangamon, Illinois|America/Chicago|114394|182|PPLA
Springfield|37.21533|-93.29824|United States|US|Greene, Missouri|America/Chicago|169176|396|PPLA2
Springfield|42.10148|-72.58981|United States|US|Hampden, Massachusetts|America/New_York|155929|21|PPLA2
Portland|45.52345|-122.67621|United States|US|Multnomah, Oregon|America/Los_Angeles|652503|15|PPLA2
Portland|43.66147|-70.25533|United States|US|Cumberland, Maine|America/New_York|68408|12|PPLA2
Valencia|39.46975|-0.37739|Spain|ES|Valencia, Valencian Community|Europe/Madrid|792492|23|PPLA
Valencia|10.16202|-68.00765|Venezuela|VE|Carabobo|America/Caracas|1385083|479|PPLA
Cordoba|37.89155|-4.77275|Spain|ES|Cordoba, Andalusia|Europe/Madrid|325708|120|PPLA2
Cordoba|-31.4135|-64.18105|Argentina|AR|Cordoba Province|America/Argentina/Cordoba|1428214|400|PPLA
Santiago|-33.45694|-70.64827|Chile|CL|Santiago Metropolitan|America/Santiago|4837295|556|PPLC
Santiago|42.88052|-8.54569|Spain|ES|A Coruna, Galicia|Europe/Madrid|96456|258|PPLA
Melbourne|-37.814|144.96332|Australia|AU|Victoria|Australia/Melbourne|5078193|25|PPLA
Melbourne|28.08363|-80.60811|United States|US|Brevard, Florida|America/New_York|80127|6|PPL
Ghent|51.05|3.71667|Belgium|BE|East Flanders, Flanders|Europe/Brussels|265086|10|PPLA2
Brussels|50.85045|4.34878|Belgium|BE|Brussels Capital|Europe/Brussels|1019022|28|PPLC
Antwerp|51.21989|4.40346|Belgium|BE|Antwerp, Flanders|Europe/Brussels|529247|8|PPLA2
Amsterdam|52.37403|4.88969|Netherlands|NL|North Holland|Europe/Amsterdam|741636|13|PPLC
Rotterdam|51.9225|4.47917|Netherlands|NL|South Holland|Europe/Amsterdam|598199|2|PPL
Berlin|52.52437|13.41053|Germany|DE|Land Berlin|Europe/Berlin|3426354|74|PPLC
Hamburg|53.55073|9.99302|Germany|DE|Free and Hanseatic City of Hamburg|Europe/Berlin|1845229|6|PPLA
Munich|48.13743|11.57549|Germany|DE|Upper Bavaria, Bavaria|Europe/Berlin|1260391|524|PPLA
Vienna|48.20849|16.37208|Austria|AT|Vienna|Europe/Vienna|1691468|171|PPLC
Zurich|47.36667|8.55|Switzerland|CH|Zurich|Europe/Zurich|436332|429|PPLA
Geneva|46.20222|6.14569|Switzerland|CH|Geneva|Europe/Zurich|201818|375|PPLA
Lyon|45.74846|4.84671|France|FR|Rhone, Auvergne-Rhone-Alpes|Europe/Paris|522969|173|PPLA
Madrid|40.4165|-3.70256|Spain|ES|Madrid|Europe/Madrid|3255944|665|PPLC
Barcelona|41.38879|2.15899|Spain|ES|Barcelona, Catalonia|Europe/Madrid|1620343|47|PPLA
Lisbon|38.71667|-9.13333|Portugal|PT|Lisbon|Europe/Lisbon|517802|45|PPLC
Rome|41.89193|12.51133|Italy|IT|Rome, Lazio|Europe/Rome|2318895|20|PPLC
Milan|45.46427|9.18951|Italy|IT|Milan, Lombardy|Europe/Rome|1371498|120|PPLA
Athens|37.98376|23.72784|Greece|GR|Attica|Europe/Athens|664046|70|PPLC
Warsaw|52.22977|21.01178|Poland|PL|Mazovia|Europe/Warsaw|1702139|113|PPLC
Prague|50.08804|14.42076|Czechia|CZ|Prague|Europe/Prague|1165581|202|PPLC
Stockholm|59.32938|18.06871|Sweden|SE|Stockholm|Europe/Stockholm|1515017|17|PPLC
Oslo|59.91273|10.74609|Norway|NO|Oslo|Europe/Oslo|580000|26|PPLC
Helsinki|60.16952|24.93545|Finland|FI|Uusimaa|Europe/Helsinki|658864|26|PPLC
Copenhagen|55.67594|12.56553|Denmark|DK|Capital Region|Europe/Copenhagen|1153615|14|PPLC
Dublin|53.33306|-6.24889|Ireland|IE|Leinster|Europe/Dublin|1024027|17|PPLC
Edinburgh|55.95206|-3.19648|United Kingdom|GB|City of Edinburgh, Scotland|Europe/London|464990|76|PPLA
Reykjavik|64.13548|-21.89541|Iceland|IS|Capital Region|Atlantic/Reykjavik|118918|37|PPLC
New York|40.71427|-74.00597|United States|US|New York|America/New_York|8804190|10|PPL
Seattle|47.60621|-122.33207|United States|US|King, Washington|America/Los_Angeles|737015|56|PPLA2
Toronto|43.70643|-79.39864|Canada|CA|Ontario|America/Toronto|2794356|175|PPLA
Tokyo|35.6895|139.69171|Japan|JP|Tokyo|Asia/Tokyo|8336599|44|PPLC
Singapore|1.28967|103.85007|Singapore|SG|Central Singapore|Asia/Singapore|5638700|23|PPLC
Nairobi|-1.28333|36.81667|Kenya|KE|Nairobi County|Africa/Nairobi|4397073|1684|PPLC
Cape Town|-33.92584|18.42322|South Africa|ZA|City of Cape Town, Western Cape|Africa/Johannesburg|4710000|25|PPLA
Sydney|-33.86785|151.20732|Australia|AU|New South Wales|Australia/Sydney|5557233|58|PPLA
"""


def _read_town(line: str) -> Town:
    name, lat, lon, country, code, zones, timezone, people, height, feature = line.split("|")
    return Town(name, float(lat), float(lon), country, code, zones, timezone, int(people), float(height), feature)


TOWNS = tuple(map(_read_town, _TABLE.strip().splitlines()))
HOME = "Ghent"
"""Where the user is by default."""


def find_town(label: str) -> Town | None:
    """Finds a town by its name, label or address; the first of that name if it is the name alone."""
    wanted = label.casefold().strip()
    exact = (town for town in TOWNS if wanted in (town.label.casefold(), town.address.casefold()))
    return next(exact, next((town for town in TOWNS if town.name.casefold() == wanted), None))


_COUNTRIES = {"uk": "gb", "usa": "us", "u.s.": "us", "u.k.": "gb", "great britain": "gb"}


def search(asked: str) -> tuple[Town, ...]:
    """Finds the towns of a name, the largest first, at most five; what follows a comma chooses among them."""
    name, *within = (part.strip().casefold() for part in asked.split(","))
    same = [town for town in TOWNS if town.name.casefold() == name and all(_is_within(town, word) for word in within)]
    return tuple(sorted(same, key=lambda town: -town.population))[:5]


def _is_within(town: Town, word: str) -> bool:
    zones = [zone.strip() for zone in town.zones.casefold().split(",")]
    return not word or _COUNTRIES.get(word, word) in (town.country.casefold(), town.code.casefold(), *zones)
